"""Makes unary calls on an xds: channel of gRPC's C-core, as the test tells it.

Each line of the standard input is a JSON list of keys. For each key one call is made,
with the key in the header that the routes hash. The answer is one line: a JSON list
with the name of the server that answered, or "!" and the error, for each key.
"""

import json
import sys
from concurrent import futures

import grpc

METHOD = "/lbd.test.Who/Answers"
OPTIONS = [
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 1000),
]


def main():
    channel = grpc.insecure_channel(sys.argv[1], options=OPTIONS)
    # A google.protobuf.StringValue shorter than 128 bytes: a tag, a length, the text.
    call = channel.unary_unary(METHOD, lambda request: request, lambda reply: reply[2:].decode())

    def ask(key):
        try:
            return call(b"", timeout=5, metadata=(("ccore-key", key),))
        except grpc.RpcError as error:
            return f"!{error.code().name}: {error.details()}"

    with futures.ThreadPoolExecutor(max_workers=8) as pool:
        for line in sys.stdin:
            print(json.dumps(list(pool.map(ask, json.loads(line)))), flush=True)


main()
