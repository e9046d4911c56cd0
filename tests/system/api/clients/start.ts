// Starts a run and waits for its end by types generated from the served document. Prints the run's id and state.
import createClient from "openapi-fetch";
import type { paths } from "./schema";

declare const process: { env: Record<string, string>; exit(code: number): never };

const client = createClient<paths>({
  baseUrl: process.env.BASE_URL,
  headers: { Authorization: `Bearer ${process.env.API_KEY}` },
});
const started = await client.POST("/api/v1/runs", { body: JSON.parse(process.env.START) });
if (!started.data) throw new Error(JSON.stringify(started.error));
let run = started.data;
while (run.ended_at === null) {
  const next = await client.GET("/api/v1/runs/{run_id}", {
    params: { path: { run_id: run.id }, query: { wait: 30, after: run.revision } },
  });
  if (!next.data) throw new Error(JSON.stringify(next.error));
  run = next.data;
}
console.log(run.id, run.state);
