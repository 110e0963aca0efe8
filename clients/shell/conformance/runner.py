"""Drives lbd-curl as the conformance tests say (clients/conformance/README.md): one process for each request."""

import collections
import concurrent.futures
import faulthandler
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time

LBD_CURL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lbd-curl")
SETTINGS = {"retries": "LBD_RETRIES", "fallback": "LBD_FALLBACK", "ttl": "LBD_TTL", "connect_timeout": "LBD_CONNECT_TIMEOUT"}
OF_BATCHES = {"stale_for", "report_interval", "max_age"}  # nothing to set in the other modes
ERRORS = {100: "dropped", 101: "circuit_broken", 102: "unavailable", 103: "unknown_cluster", 104: "permission_denied"}
ERRORS |= {28: "timeout"} | dict.fromkeys((6, 7, 16, 18, 35, 52, 55, 56, 60, 92), "connection")


class Runner:
    def __init__(self):
        self.environment = None
        self.processes = set()
        self.lock = threading.Lock()

    def open(self, command):
        if command["mode"] == "batch":
            return {"unsupported": "a process has one request"}
        if command.get("adapter", "core") != "core":
            return {"unsupported": "no such adapter"}
        options = {name: value for name, value in command.get("options", {}).items() if name not in OF_BATCHES}
        if options.get("max_tokens", 2) <= 1:  # permits no retry
            options["retries"] = 0
            del options["max_tokens"]
        self.hash, target = options.pop("hash", ""), options.pop("target", "")
        headers = options.pop("headers", [])
        if lacking := options.keys() & {"choice", "hooks"}:
            return {"unsupported": f"{', '.join(lacking)}: the caller is a shell, which sees curl only"}
        if unknown := options.keys() - SETTINGS.keys():
            return {"unsupported": f"{', '.join(sorted(unknown))}: nothing is kept between two requests"}
        self.environment = os.environ | {
            "LBD": command["lbd"],
            "LBD_MODE": command["mode"],
            "LBD_TOKEN": command.get("token", ""),
            "LBD_TOKEN_FILE": command.get("token_file", ""),
            "LBD_HOSTS": "upstream.test=" + ("xds:///" + target if target else command["cluster"]),
            "LBD_HASH": "" if self.hash == "code" else self.hash,
            "LBD_ROUTE_HEADERS": " ".join(headers),
            **{SETTINGS[name]: str(value) for name, value in options.items()},
        }
        return {"ok": True}

    def request(self, command):
        arguments = ["curl" if "url" in command else LBD_CURL, "-sS", "-w", "\n%{http_code}"]
        method = command.get("method", "GET")
        arguments += ["-I", "-o", "/dev/null"] if method == "HEAD" else ["-X", method]
        if "body" in command:
            arguments += ["--data-raw", command["body"]]
        if "timeout" in command:
            arguments += ["-m", str(command["timeout"])]
        if command.get("idempotent"):
            arguments += ["-H", "Idempotency-Key: 1"]
        for name, value in command.get("headers", {}).items():
            arguments += ["-H", f"{name}: {value}"]
        environment = dict(self.environment)
        if key := command.get("key"):
            kind, _, name = self.hash.partition(":")
            if kind == "code":
                environment["LBD_HASH_KEY"] = key
            else:
                arguments += ["-b", f"{name}={key}"] if kind == "cookie" else ["-H", f"{name}: {key}"]
        arguments.append(command.get("url") or "http://upstream.test" + command.get("path", "/"))
        end = time.monotonic() + command.get("timeout", float("inf"))
        process = subprocess.Popen(
            arguments,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        with self.lock:
            self.processes.add(process)
        output, message = process.communicate()
        with self.lock:
            self.processes.remove(process)
        if process.returncode == 0:
            body, _, status = output.rpartition("\n")
            return {"status": int(status), "body": body}
        error = ERRORS.get(process.returncode, "other")
        if error == "timeout" and time.monotonic() < end - 0.05:  # curl has one status for that and for no connection
            error = "connection"
        return {"error": error, "message": f"{process.returncode}: {message}"}

    def load(self, command):
        began, rate = time.monotonic(), command.get("rate")
        took = collections.defaultdict(list)  # by the second in which the request was due

        def one(i):
            if not rate:
                keys = command.get("keys")
                return self.request(command | {"key": f"{command.get('key')}-{i % keys}"} if keys else command)
            due = began + (i + 1) / rate
            time.sleep(max(0.0, due - time.monotonic()))
            answer = self.request(command)
            took[int(due - began)].append(time.monotonic() - due)
            return answer

        with concurrent.futures.ThreadPoolExecutor(command.get("threads", 1)) as pool:
            answers = list(pool.map(one, range(command["n"])))
        return {
            "statuses": collections.Counter(str(answer["status"]) for answer in answers if "status" in answer),
            "errors": collections.Counter(answer["error"] for answer in answers if "error" in answer),
            "seconds": time.monotonic() - began,
            "p99": [sorted(took[second])[len(took[second]) * 99 // 100] for second in sorted(took)],
        }

    fork = load  # each lbd-curl is a forked child

    def close(self, _):
        return {"ok": True}

    def terminate(self, *_):
        """Ends as a script does whose processes all get the signal."""
        for process in list(self.processes):
            process.terminate()
        for process in list(self.processes):
            process.wait()
        os._exit(128 + signal.SIGTERM)


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
    runner = Runner()
    signal.signal(signal.SIGTERM, runner.terminate)
    for line in lines():
        command = json.loads(line)
        print(json.dumps(getattr(runner, command["do"])(command)), flush=True)
        if command["do"] == "close":
            break


if __name__ == "__main__":
    main()
