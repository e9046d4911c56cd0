"""A bucket of a server on this machine that speaks as S3 does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import boto3
from botocore.config import Config
from moto.server import ThreadedMotoServer
from storages.backends.s3 import S3Storage

NAME = "durableagents"


class Bucket:
    """The bucket, and the server's address."""

    def __init__(self, address: str, **options: Any) -> None:
        self.address = address
        access = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": "us-east-1"}
        self.resource = boto3.resource("s3", endpoint_url=address, **access)
        self.bucket = self.resource.create_bucket(Bucket=NAME, **options)

    def options(self, **changed: Any) -> dict[str, Any]:
        """Return the options of a storage in this bucket, for STORAGES."""
        return {
            "bucket_name": NAME,
            "endpoint_url": self.address,
            "access_key": "test",
            "secret_key": "test",
            "region_name": "us-east-1",
            "client_config": Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1}),
            **changed,
        }

    def storage(self, **changed: Any) -> S3Storage:
        return S3Storage(**self.options(**changed))

    def keys(self) -> list[str]:
        return [each.key for each in self.bucket.objects.all()]


@contextmanager
def serve(**options: Any) -> Iterator[Bucket]:
    """Serve an empty bucket, made with these options."""
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield Bucket(f"http://{host}:{port}", **options)
    finally:
        server.stop()
