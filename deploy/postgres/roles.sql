-- The two roles and the database: see docs/how-to/postgresql-and-pgbouncer.md. Run once by a superuser with psql, which reads
-- the passwords from files; in compose.yaml the image of PostgreSQL does it at its first start.
\set ON_ERROR_STOP on
\set owner_password `cat "${SECRETS:-/run/secrets}/owner_password"`
\set runtime_password `cat "${SECRETS:-/run/secrets}/runtime_password"`
CREATE ROLE agents_owner LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'owner_password';
CREATE ROLE agents LOGIN NOSUPERUSER NOCREATEDB NOCREATEROLE PASSWORD :'runtime_password';
CREATE DATABASE agents OWNER agents_owner;
REVOKE TEMPORARY, CREATE ON DATABASE agents FROM PUBLIC;
