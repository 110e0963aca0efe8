"""Drives the client as the conformance tests say (clients/conformance/README.md)."""

import collections
import concurrent.futures
import contextlib
import faulthandler
import http.client
import json
import os
import select
import signal
import sys
import time

import adapters

import lbd

OPTIONS = {"stale_for", "report_interval", "max_age", "retries", "max_tokens", "fallback", "ttl", "connect_timeout"}
ERRORS = {
    lbd.Dropped: "dropped",
    lbd.CircuitBroken: "circuit_broken",
    lbd.Unavailable: "unavailable",
    lbd.UnknownCluster: "unknown_cluster",
    lbd.PermissionDenied: "permission_denied",
}


class Runner:
    def __init__(self):
        self.client = self.send = self.plain = None
        self.hash, self.choice = "", False  # where the hash key of a request is; whether answers have the choice
        self.attempts, self.states = [], []  # what hooks got

    def open(self, command):
        self.close({})
        if command.get("adapter", "core") not in adapters.ADAPTERS:
            return {"unsupported": "no such adapter"}
        options = dict(command.get("options", {}))
        self.hash, self.choice = options.pop("hash", ""), options.pop("choice", False)
        host = {"target": options.pop("target")} if "target" in options else {"cluster": command["cluster"]}
        host |= {"headers": options.pop("headers", ()), "hash": "" if self.hash == "code" else self.hash}
        hooks = self.hooks(options.pop("hooks")) if "hooks" in options else {}
        if unknown := options.keys() - OPTIONS:
            return {"unsupported": f"options {sorted(unknown)}"}
        self.client = lbd.Client(
            command["lbd"],
            mode=command["mode"],
            token=command.get("token"),
            token_file=command.get("token_file"),
            hosts={"upstream.test": lbd.Host(**host)},
            **hooks,
            **options,
        )
        adapter = adapters.ADAPTERS[command.get("adapter", "core")]
        self.send, self.plain = adapter(self.client), adapter(None)
        return {"ok": True}

    def hooks(self, kind):
        self.attempts, self.states = [], []

        def on_attempt(attempt):
            cluster, address, *_, number = attempt.choice
            seen = {"cluster": cluster, "address": address, "number": number}
            self.attempts.append(seen | {"outcome": attempt.outcome, "seconds": attempt.duration})
            if kind == "fail":
                raise ValueError("a hook of the test")

        return {"on_attempt": on_attempt, "on_state": lambda state: self.states.append(state)}

    def events(self, command):
        answer = {"attempts": self.attempts, "states": self.states}
        self.attempts, self.states = [], []
        return answer

    def one(self, command, key=None):
        """A status and body, or an error and a message, and what lbd has chosen."""
        send = self.plain if "url" in command else self.send
        url = command.get("url") or "http://upstream.test" + command.get("path", "/")
        body = command["body"].encode() if "body" in command else None
        end = time.monotonic() + (command.get("timeout") or 30)
        headers = command.get("headers", {}) | ({"Idempotency-Key": "1"} if command.get("idempotent") else {})
        key = key or command.get("key", "")
        kind, _, name = self.hash.partition(":")
        if key and name:
            headers |= {name: key} if kind == "header" else {"Cookie": f"{name}={key}"}
        try:
            with lbd.ask(hash=key) if self.hash == "code" else contextlib.nullcontext():
                status, content, response = send(
                    command.get("method", "GET"), url, body, headers, command.get("timeout")
                )
            return status, content.decode(), lbd.choice(response)
        except lbd.LbdError as error:
            kind = next(name for kind, name in ERRORS.items() if isinstance(error, kind))
            return kind, str(error), lbd.choice(error)
        except adapters.TIMEOUTS as error:
            connecting = isinstance(error, adapters.CONNECT_TIMEOUTS) and time.monotonic() < end
            return "connection" if connecting else "timeout", repr(error), lbd.choice(error)
        except (OSError, http.client.HTTPException, *adapters.CONNECTION) as error:
            return "connection", repr(error), lbd.choice(error)
        except Exception as error:
            return "other", repr(error), lbd.choice(error)

    def request(self, command):
        result, text, choice = self.one(command)
        answer = {"status": result, "body": text} if isinstance(result, int) else {"error": result, "message": text}
        if self.choice and choice is not None:
            answer["choice"] = choice._asdict() | {"zone": choice.locality.zone}
        return answer

    def load(self, command):
        began, rate = time.monotonic(), command.get("rate")
        n, threads = command["n"], command.get("threads", 1)
        took = collections.defaultdict(list)  # by the second in which the request was due

        def one(i):
            key = f"{command['key']}-{i % command['keys']}" if "keys" in command else None
            if not rate:
                return self.one(command, key)[0]
            due = began + (i + 1) / rate
            time.sleep(max(0.0, due - time.monotonic()))
            result = self.one(command, key)[0]
            took[int(due - began)].append(time.monotonic() - due)
            return result

        if threads == 1:
            results = [one(i) for i in range(n)]
        else:
            with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                results = list(pool.map(one, range(n)))
        counts = collections.Counter(results)
        return {
            "statuses": {str(key): count for key, count in counts.items() if isinstance(key, int)},
            "errors": {key: count for key, count in counts.items() if isinstance(key, str)},
            "seconds": time.monotonic() - began,
            "p99": [sorted(took[second])[len(took[second]) * 99 // 100] for second in sorted(took)],
        }

    def fork(self, command):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as pipe:
                json.dump(self.load(command | {"threads": 1}), pipe)
            sys.exit()
        os.close(writer)
        with os.fdopen(reader) as pipe:
            answer = json.load(pipe)
        os.waitpid(pid, 0)
        return answer

    def close(self, command):
        if self.client is not None:
            self.client.close()
            self.client = None
        return {"ok": True}


def lines():
    """The lines of the input: each comes when the one before was answered."""
    # Python handles a signal that comes just before a read begins when that read has ended. So none waits.
    while True:
        if select.select([sys.stdin], [], [], 0.05)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            yield line


def main():
    faulthandler.register(signal.SIGQUIT)  # the driver asks a runner that does not end what it does
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the client is closed at the end of the process
    runner = Runner()
    for line in lines():
        command = json.loads(line)
        print(json.dumps(getattr(runner, command["do"])(command)), flush=True)
        if command["do"] == "close":
            break


if __name__ == "__main__":
    main()
