"""What lbd-curl and the library make of answers of lbd, also of those that lbd would not give."""

import glob
import hashlib
import os
import re
import socket
import threading

from case import Case
from daemon import Daemon, until
from upstream import Held, Refused, status


class Answers:
    """A listener in the place of lbd, which sends the same bytes to each call, and keeps what it got."""

    def __init__(self, answer=b"", wait=False):
        self.calls = []
        self._answer = answer
        self._wait = wait
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.lbd = "http://127.0.0.1:%d" % self._listener.getsockname()[1]
        self._open = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.calls.append(connection.recv(65536))
            try:
                connection.sendall(self._answer)
            except OSError:
                pass
            if self._wait:
                self._open.append(connection)
            else:
                connection.close()

    def send(self, answer):
        """Answers the calls that wait."""
        for connection in self._open:
            connection.sendall(answer)

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            connection.close()


def answer(body, code=200):
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (code, len(body), body)


class ErrorTest(Case):
    def fails(self, result, text, *arguments, **settings):
        """Runs lbd-curl, which must end with a status and one message."""
        status, output, messages = self.curl("-sS", self.url, *arguments, **settings)
        self.assertEqual((status, output), (result, b""), messages)
        self.assertRegex(messages, f"^lbd: cluster {self.cluster}: .*{text}.*\n$")
        return messages

    def test_dropped(self):
        upstream = self.upstream()
        self.push(upstream, drop=100)
        for mode in ("pick", "lease"):
            self.fails(100, r"throttle.*\(dropped\)", LBD_MODE=mode, LBD_FALLBACK=upstream.address)
        self.assertEqual(upstream.requests, [])

    def test_circuit_broken(self):
        held = Held()
        self.push(self.upstream(held), max_requests=1)
        first = self.start("-sS", self.url, LBD_MODE="lease")
        held.arrived.wait(120)
        self.fails(101, r"\(circuit_broken\)", LBD_MODE="lease")
        held.release()
        self.assertEqual(first.wait(120), 0)
        self.succeeds("-sS", self.url, LBD_MODE="lease")

    def test_unknown_cluster(self):
        self.fails(103, r"\(unknown_cluster\)", LBD_FALLBACK=self.closed(Refused()).address)

    def test_unavailable(self):
        self.push()
        self.fails(102, r"\(\w+\)", "-m", "0.3", LBD_FALLBACK=self.closed(Refused()).address)

    def test_unreachable(self):
        for lbd in ("unix:/nowhere", "http://" + self.closed(Refused()).address, "unix:///nowhere", "nonsense://x"):
            for mode in ("pick", "lease"):
                self.fails(102, "lbd is unreachable: .", LBD=lbd, LBD_MODE=mode)

    def test_fallback(self):
        upstream = self.upstream()
        for mode in ("pick", "lease"):
            output = self.succeeds("-sS", self.url, LBD="unix:/nowhere", LBD_MODE=mode, LBD_FALLBACK=upstream.address)
            self.assertEqual(output.decode(), upstream.address)
        other = self.upstream(status(503), path=os.path.join(self.directory, "socket"))
        self.assertEqual(self.succeeds("-sS", self.url, LBD="unix:/nowhere", LBD_FALLBACK=other.address), b"sorry")
        self.assertEqual((len(other.requests), other.requests[0][2]["Host"]), (1, self.cluster + ".lbd"))

    def test_hanging_lbd(self):
        lbd = self.closed(Answers(wait=True))
        self.fails(102, "unreachable", "-m", "0.3", LBD=lbd.lbd)
        (wait,) = re.findall(rb"[?&]wait=(\d+)ms", lbd.calls[0])  # a call takes 1 s more
        self.assertLessEqual(int(wait), 300)

    def test_restarted_lbd(self):
        upstream = self.upstream()
        self.push(upstream)
        self.daemon.stop()
        self.fails(102, "unreachable")
        self.daemon.start()
        self.succeeds("-sS", self.url)

    def test_answers_that_are_none(self):
        endpoint = b'{"cluster":"x","address":"127.0.0.1:1","lease":{"id":"A1"}}'
        answers = [
            b"",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" + endpoint,
            answer(endpoint[:30]),
            answer(endpoint[:-5]),
            answer(b"127.0.0.1:1\n"),
            answer(b"{}"),
            answer(b"{" + b" " * 200_000 + b"}"),
            answer(endpoint, 302),
            answer(b"<html>", 503),
            answer(b'{"code":"x', 503),
            answer(b'{"address":"127.0.0.1:1 -o x"}'),
            answer(b'{"address":"$(touch x):1"}'),
            answer(b'{"address":"127.0.0.1:1\\n-o"}'),
            answer(b'{"address":"127.0.0.1"}'),
            answer(b'{"address":"127.0.0.1:"}'),
            answer(b'{"address":"127.0.0.1:x"}'),
            answer(b'{"address":["127.0.0.1:1"]}'),
            answer(b'{"x":"\\"address\\":\\"127.0.0.1:1\\""}'),
            b"SSH-2.0\r\n",
        ]
        for text in answers:
            with self.subTest(text=text[:120]):
                self.fails(102, "lbd is unreachable", LBD=self.closed(Answers(text)).lbd)
        for lease in (b"", b',"lease":{}', b',"lease":{"id":"../x"}', b',"lease":{"id":""}', b',"id":"A1"'):
            text = answer(b'{"address":"127.0.0.1:1"' + lease + b"}", 201)
            with self.subTest(text=text):
                self.fails(102, "no endpoint", LBD=self.closed(Answers(text)).lbd, LBD_MODE="lease")

    def test_rejections_without_a_code(self):
        upstream = self.upstream()
        for code, result in [(401, 104), (403, 104), (429, 102)]:
            lbd = self.closed(Answers(answer(b"no", code))).lbd
            self.fails(result, rf"status {code} \(\w+\)", LBD=lbd, LBD_FALLBACK=upstream.address)

    def test_messages_of_a_hostile_lbd(self):
        detail = rb"\u001b[2J \"$(touch x)`touch x`%s%n\\ \n \ud83d" + b"\xc3\xa9" + b'","code":"dropped'
        lbd = self.closed(Answers(answer(b'{"detail":"' + detail + b'"}', 503))).lbd
        messages = self.fails(100, "touch x", LBD=lbd)
        self.assertEqual(re.findall(r"[\x00-\x1f\x7f]", messages), ["\n"])
        self.assertIn('"$(touch x)`touch x`%s%n\\ ', messages)
        messages = self.fails(100, "a.b", LBD=self.closed(Answers(answer(b'{"detail":"a\x1bb","code":"dropped"}', 503))).lbd)
        self.assertNotIn("\x1b", messages)
        self.assertEqual(glob.glob("x"), [])


class TokenTest(Case):
    @classmethod
    def setUpClass(cls):
        pass

    def setUp(self):
        super().setUp()
        self.tokens = os.path.join(self.directory, "tokens.yaml")
        entry = "- {name: %s, sha256: %s, roles: [%s]}\n"
        with open(self.tokens, "w") as file:
            file.write("tokens:\n")
            for name, roles in [("operator", "push, read, pick"), ("shop", "pick")]:
                file.write(entry % (name, hashlib.sha256(f"{name}-token-of-a-test".encode()).hexdigest(), roles))
        os.chmod(self.tokens, 0o600)
        self.daemon = Daemon("--tokens=" + self.tokens, token="operator-token-of-a-test")
        self.addCleanup(self.daemon.close)
        self.push(self.upstream())

    def test_token(self):
        for mode in ("pick", "lease"):
            self.succeeds("-sS", self.url, LBD_TOKEN="shop-token-of-a-test", LBD_MODE=mode)
            for token in ("", "wrong", "shop-token-of-a-test\nx", "@/etc/passwd"):
                with self.subTest(token=token):
                    result, _, messages = self.curl("-sS", self.url, LBD_TOKEN=token, LBD_MODE=mode)
                    self.assertEqual(result, 104)
                    self.assertIn("(unauthenticated)" if token else "(", messages)

    def test_token_file(self):
        path = os.path.join(self.directory, "token")
        self.assertEqual(self.curl("-sS", self.url, LBD_TOKEN_FILE=path)[0], 104)
        for text in ("shop-token-of-a-test", "shop-token-of-a-test\n"):
            with open(path, "w") as file:
                file.write(text)
            self.succeeds("-sS", self.url, LBD_TOKEN_FILE=path)

    def test_token_is_in_no_arguments(self):
        lbd = self.closed(Answers(wait=True))
        token = "secret-token-of-a-test"
        process = self.start("-sS", self.url, LBD=lbd.lbd, LBD_TOKEN=token)
        until(lambda: lbd.calls, "lbd is asked")
        self.assertIn(b"Authorization: Bearer " + token.encode(), lbd.calls[0])
        arguments = []
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                if os.getsid(int(path.split("/")[2])) == process.pid:
                    with open(path, "rb") as file:
                        arguments.append(file.read())
            except (OSError, ProcessLookupError):
                continue
        self.assertTrue(any(b"/v1/pick" in text for text in arguments), arguments)
        self.assertFalse(any(token.encode() in text for text in arguments), arguments)


class LibraryTest(Case):
    def test_picks_and_leases(self):
        upstream, other = self.upstream(), self.upstream()
        self.push(upstream, other)
        program = f"lbd_pick {self.cluster} {other.address}; lbd_lease {self.cluster} 30000 {other.address}"
        result, output, messages = self.script(program, LBD_OWNER="a & b")
        self.assertEqual((result, messages), (0, ""))
        leases = self.daemon.leases(self.cluster)
        self.assertEqual([lease["owner"] for lease in leases], ["a & b"])
        self.assertEqual(output, f"{upstream.address}\n{upstream.address} {leases[0]['id']}\n")
        lease = leases[0]["id"]
        self.assertEqual(self.script(f"lbd_renew {lease} 60000 && lbd_done {lease} error"), (0, "", ""))
        self.assertEqual((self.daemon.leases(self.cluster), self.daemon.ended(self.cluster, "error")), ([], 1))
        self.assertEqual(self.script(f"lbd_done {lease[::-1]} success")[0], 1)

    def test_uses_no_proxy_of_the_environment(self):
        lbd = self.closed(Answers(answer(b'{"address":"127.0.0.1:1"}'))).lbd
        proxy = "http://" + self.closed(Refused()).address
        self.assertEqual(self.script("lbd_pick x", LBD=lbd, http_proxy=proxy, all_proxy=proxy), (0, "127.0.0.1:1\n", ""))

    def test_returns_errors(self):
        program = f'address=$(lbd_pick {self.cluster}) || echo "$?"'
        result, output, messages = self.script(program)
        self.assertEqual((result, output), (0, "103\n"))
        self.assertIn("unknown_cluster", messages)

    def test_works_in_scripts_with_set_e(self):
        program = 'set -eu\naddress=$(lbd_pick x)\necho "$address"'
        fallback = self.script(program, LBD="unix:/nowhere", LBD_FALLBACK="127.0.0.1:5")
        self.assertEqual(fallback, (0, "127.0.0.1:5\n", ""))
        result, output, messages = self.script(program, LBD="unix:/nowhere")
        self.assertEqual((result, output), (102, ""))
        self.assertIn("lbd is unreachable", messages)
        result, output, messages = self.script("set -e\n" + f"lbd_lease {self.cluster} 1000")
        self.assertEqual((result, output), (103, ""))
        self.assertIn("unknown_cluster", messages)

    def test_shows_no_token_with_set_x(self):
        lbd = self.closed(Answers(answer(b'{"address":"127.0.0.1:1"}')))
        token, path = "secret-token-of-a-test", os.path.join(self.directory, "token")
        with open(path, "w") as file:
            file.write(token)
        for settings in ({"LBD_TOKEN": token}, {"LBD_TOKEN_FILE": path}):
            result, output, messages = self.script("set -x\nlbd_pick x", LBD=lbd.lbd, **settings)
            self.assertEqual((result, output), (0, "127.0.0.1:1\n"))
            self.assertIn(b"Authorization: Bearer " + token.encode(), lbd.calls[-1])
            self.assertNotIn(token, messages)
