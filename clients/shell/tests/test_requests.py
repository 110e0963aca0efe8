"""What lbd-curl makes of the arguments of curl, and of answers of upstreams."""

import os
import re
import ssl
import subprocess
import threading
import time

from case import LBD_CURL, SHELL, Case
from daemon import until
from upstream import Held, Refused, Silent, half, reply, reset, status

BINARY = bytes(range(256)) * 8192


class RequestTest(Case):
    def test_sends_method_host_path_and_body(self):
        upstream = self.upstream()
        self.push(upstream)
        body = self.succeeds("-fsS", self.url + "items/7?a=%20&b", "-d", "x=http://other.lbd/", "-HA: b")
        self.assertEqual(body.decode(), upstream.address)
        method, path, headers, sent = upstream.requests[0]
        self.assertEqual((method, path, sent), ("POST", "/items/7?a=%20&b", b"x=http://other.lbd/"))
        self.assertEqual((headers["Host"], headers["A"]), (self.cluster + ".lbd", "b"))

    def test_finds_urls_in_all_forms(self):
        self.push(self.upstream())
        host = f"{self.cluster}.lbd"
        forms = [
            [host],
            [host + ":8080/path"],
            ["http://user:secret@" + host],
            ["--url", "http://" + host + "?q=a@b.lbd:1/"],
            ["http://" + host.upper() + "#fragment"],
            ["-ehttp://other.lbd", host],
            ["-sSe", "http://other.lbd", host],
            ["--referer", "http://other.lbd", "-XPUT", host],
            ["--resolve", "other.lbd:80:127.0.0.1", host],
        ]
        for form in forms:
            with self.subTest(form=form):
                self.succeeds("-sS", *form)

    def test_refuses_what_it_cannot_send(self):
        self.push(self.upstream())
        refused = [
            [self.url, self.url],
            [self.url, "http://127.0.0.1:1/"],
            [self.url, "--next", self.url],
            ["-s:", self.url],
            ["--", self.url],
            ["-m", "soon", self.url],
        ]
        for arguments in refused:
            with self.subTest(arguments=arguments):
                result, output, messages = self.curl("-sS", *arguments)
                self.assertEqual((result, output), (105, b""))
                self.assertRegex(messages, "^lbd-curl: ")
        for name, value in [("MODE", "batch"), ("MODE", "x"), ("RETRIES", "-1"), ("RETRIES", "1;ls"), ("TTL", "x")]:
            with self.subTest(name=name):
                result, _, messages = self.curl("-sS", self.url, **{"LBD_" + name: value})
                self.assertEqual((result, "LBD_" + name in messages), (105, True))

    def test_leaves_other_hosts_to_curl(self):
        upstream = self.upstream()
        output = self.succeeds("-sS", f"http://{upstream.address}/", "-d", "http://x.lbd/", LBD="unix:/nowhere")
        self.assertEqual(output.decode(), upstream.address)
        self.assertEqual(self.curl("-sS", "http://" + self.closed(Refused()).address, LBD="unix:/nowhere")[0], 7)
        self.assertIn(b"curl", self.succeeds("--version"))
        url = f"http://{upstream.address}/"
        both = self.succeeds("-sS", url, "--next", "-sS", "--", url, LBD="unix:/nowhere")
        self.assertEqual(both.decode(), upstream.address * 2)

    def test_maps_hosts_to_clusters(self):
        upstream = self.upstream()
        self.cluster = '/eu west?ü&x=1#%"q\\+;,$(touch x)`'
        self.push(upstream)
        hosts = f"a.test=nope\nshop.test={self.cluster}\nb.test=nope"
        self.assertEqual(self.succeeds("-sS", "http://shop.test/", LBD_HOSTS=hosts).decode(), upstream.address)
        self.assertEqual(upstream.requests[0][2]["Host"], "shop.test")
        self.assertEqual(self.succeeds("-sS", "HTTP://Shop.TEST:81/", LBD_HOSTS=hosts).decode(), upstream.address)
        folder, _, name = os.path.realpath(LBD_CURL).rpartition("/")
        program = f"cd {folder}; {' '.join(SHELL)} {name} -sS http://shop.test/"  # without a slash in its name
        self.assertEqual(self.script(program, LBD_HOSTS=hosts), (0, upstream.address, ""))

    def test_passes_bodies_unchanged(self):
        self.push(self.upstream(lambda handler: reply(handler, 200, handler.body)))
        self.assertEqual(self.succeeds("-sS", self.url, "--data-binary", "@-", data=BINARY), BINARY)
        path = os.path.join(self.directory, "body")
        self.succeeds("-sS", self.url, "--data-binary", "@-", "-o", path, data=BINARY)
        with open(path, "rb") as file:
            self.assertEqual(file.read(), BINARY)

    def test_passes_bodies_as_they_come(self):
        more = threading.Event()

        def stream(handler):
            handler.send_response(200)
            handler.send_header("Content-Length", "2")
            handler.end_headers()
            handler.wfile.write(b"1")
            more.wait(120)
            handler.wfile.write(b"2")

        self.push(self.upstream(stream))
        process = self.start("-sSN", self.url)
        self.assertEqual(process.stdout.read(1), b"1")
        more.set()
        self.assertEqual(process.communicate(timeout=120), (b"2", b""))

    def test_prints_headers(self):
        self.push(self.upstream())
        self.assertRegex(self.succeeds("-sSI", self.url), b"^HTTP/1.1 200 OK\r\n(.*\r\n)+\r\n$")
        self.assertRegex(self.succeeds("-sSi", self.url), b"^HTTP/1.1 200 OK\r\n(.*\r\n)+\r\n127")
        self.assertRegex(self.succeeds("-sSD-", self.url), b"^HTTP/1.1 200 OK\r\n(.*\r\n)+\r\n127")
        self.assertRegex(self.succeeds("-sS", "-o", "/dev/null", "-D", "-", self.url), b"^HTTP/1.1 200 OK\r\n")
        path = os.path.join(self.directory, "headers")
        self.assertRegex(self.succeeds("-sS", self.url, "--dump-header", path), b"^127")
        with open(path) as file:
            self.assertRegex(file.read(), "^HTTP/1.1 200 OK\n")

    def test_verifies_the_name_of_the_cluster(self):
        key, certificate = os.path.join(self.directory, "key"), os.path.join(self.directory, "certificate")
        name = self.cluster + ".lbd"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        command += ["-keyout", key, "-out", certificate, "-subj", "/CN=x", "-addext", "subjectAltName=DNS:" + name]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        names = []
        context.sni_callback = lambda _, server_name, __: names.append(server_name)
        upstream = self.upstream(context=context)
        self.push(upstream)
        self.succeeds("-sS", f"https://{name}/", "--cacert", certificate)
        self.assertEqual(names, [name])
        self.daemon.push("other", [upstream.address])
        self.assertEqual(self.curl("-s", "https://other.lbd/", "--cacert", certificate)[0], 60)

    def test_uses_no_proxy_of_the_environment(self):
        self.push(self.upstream())
        proxy = "http://" + self.closed(Refused()).address
        self.succeeds("-sS", self.url, http_proxy=proxy, ALL_PROXY=proxy)


class RetryTest(Case):
    def test_retries_failures_elsewhere(self):
        upstream = self.upstream()
        self.push(upstream, self.upstream(status(503)), self.upstream(reset), self.closed(Refused()))
        path = os.path.join(self.directory, "body")
        with open(path, "wb") as file:
            file.write(BINARY)
        put = ["-X", "PUT", "--data-binary", "@" + path]
        for arguments in [[], ["-XDELETE"], ["-T", path], put, ["-dx", "-Hidempotency-key: 1"]]:
            for _ in range(4):
                with self.subTest(arguments=arguments):
                    self.assertEqual(
                        self.succeeds("-sS", self.url, *arguments, LBD_RETRIES="3").decode(), upstream.address
                    )
        self.assertEqual({len(body) for method, _, _, body in upstream.requests if method == "PUT"}, {len(BINARY)})

    def test_sends_any_request_elsewhere_without_a_connection(self):
        upstream = self.upstream()
        self.push(upstream, *[self.closed(Refused()) for _ in range(3)])
        for mode in ("pick", "lease"):
            for count in range(1, 5):
                output = self.succeeds("-sS", self.url, "-dx", LBD_MODE=mode, LBD_RETRIES="0")
                self.assertEqual((output.decode(), upstream.requests[-1][3]), (upstream.address, b"x"))
                self.assertEqual(len(upstream.requests), count)
            upstream.requests.clear()
        until(lambda: self.daemon.connect_failures(self.cluster), "lbd is told")
        until(lambda: self.daemon.ended(self.cluster, "unreachable"), "the leases are ended")

    def test_sends_a_body_of_a_pipe_once(self):
        upstream = self.upstream()
        self.push(upstream, self.closed(Refused()))
        for _ in range(6):
            self.assertIn(self.curl("-s", self.url, "-d@-", data=b"body")[0], (0, 7))
        self.assertEqual({body for *_, body in upstream.requests}, {b"body"})

    def test_connects_with_more_time_if_there_is_no_other_endpoint(self):
        self.push(self.closed(Silent()))
        result, _, messages = self.curl("-sS", self.url, LBD_CONNECT_TIMEOUT="0.6")
        self.assertEqual(result, 28)
        self.assertGreaterEqual(int(re.search(r"after (\d+) m", messages)[1]), 600, messages)
        until(lambda: self.daemon.connect_failures(self.cluster) == 2, "lbd is told of both")

    def test_does_not_repeat_other_requests(self):
        failing = [self.upstream(status(503)) for _ in range(3)]
        self.push(*failing)
        pipe = os.path.join(self.directory, "pipe")
        os.mkfifo(pipe)
        config = os.path.join(self.directory, "config")
        with open(config, "w") as file:
            file.write('data = "x"\n')
        once = [["-d", "x"], ["-X", "POST"], ["-T", "-"], ["-XPUT", "-d@-"], ["-XPUT", "-Fx=@/dev/null"], ["-K", config]]
        for number, arguments in enumerate([*once, ["-C", "1"], ["-O", "-J"]]):
            with self.subTest(arguments=arguments):
                self.curl("-sS", self.url, *arguments, data=b"body")
                self.assertEqual(sum(len(upstream.requests) for upstream in failing), number + 1)

    def test_does_not_repeat_what_curl_expands(self):
        """curl has these options from 8.3 on."""
        folder = os.path.realpath(LBD_CURL).rpartition("/")[0]
        for path in (folder, folder + "/../share/lbd"):
            if os.path.exists(path + "/arguments.sh"):
                library = path
        program = f'. "{library}/arguments.sh"; read_arguments http://a.lbd/ %s x; echo "$host,$repeatable"'
        self.assertEqual(self.script(program % "--expand-data"), (0, "a.lbd,\n", ""))
        self.assertEqual(self.script(program % "--user-agent"), (0, "a.lbd,yes\n", ""))

    def test_retries_at_most_twice_and_shows_the_last_answer(self):
        failing = [self.upstream(status(503)) for _ in range(4)]
        self.push(*failing)
        for settings, tries in [({}, 3), ({"LBD_RETRIES": "1"}, 2), ({"LBD_RETRIES": "0"}, 1)]:
            with self.subTest(settings=settings):
                before = [len(upstream.requests) for upstream in failing]
                self.assertEqual(self.succeeds("-sS", "-w", " %{http_code}", self.url, **settings), b"sorry 503")
                sent = [len(upstream.requests) - count for upstream, count in zip(failing, before)]
                self.assertEqual((sum(sent), max(sent)), (tries, 1))

    def test_shows_the_last_answer_without_another_endpoint(self):
        failing = self.upstream(status(503))
        self.push(failing)
        self.assertEqual(self.succeeds("-sS", "-D-", self.url)[-5:], b"sorry")
        self.assertEqual(len(failing.requests), 1)
        result, output, messages = self.curl("-fsS", self.url, "-w%{http_code}")
        self.assertEqual((result, output), (22, b"503"))
        self.assertEqual(messages.count("curl: "), 1)

    def test_prints_of_one_try_only(self):
        self.push(self.upstream(), self.upstream(status(503)), self.upstream(reset))
        path = os.path.join(self.directory, "body")
        for _ in range(6):
            self.assertEqual(self.succeeds("-sS", self.url, "-o", path, "-w", "%{http_code}"), b"200")
            self.assertEqual(self.succeeds("-sS", self.url, "-D-").count(b"HTTP/1.1"), 1)

    def test_passes_large_failures(self):
        failing = [self.upstream(status(503, BINARY)) for _ in range(2)]
        self.push(*failing)
        self.assertEqual(self.succeeds("-sS", self.url), BINARY)
        self.assertEqual(sum(len(upstream.requests) for upstream in failing), 1)

    def test_does_not_retry_within_a_body(self):
        upstreams = [self.upstream(half), self.upstream(half)]
        self.push(*upstreams)
        self.assertEqual(self.curl("-s", self.url), (18, b"begin", ""))
        self.assertEqual(sum(len(upstream.requests) for upstream in upstreams), 1)

    def test_does_not_retry_after_the_deadline(self):
        upstreams = [self.upstream(Held()) for _ in range(2)]
        self.push(*upstreams)
        self.assertEqual(self.curl("-s", "-m2", self.url)[0], 28)
        self.assertEqual(sum(len(upstream.requests) for upstream in upstreams), 1)

    def test_retries_if_lbd_has_forgotten_the_lease(self):
        requests = []

        def restart(handler):
            requests.append(handler)
            if len(requests) == 1:
                self.daemon.stop()
                self.daemon.start()
            reply(handler, 503 if len(requests) == 1 else 200)

        self.push(self.upstream(restart), self.upstream(restart))
        self.succeeds("-sSf", self.url, LBD_MODE="lease")
        self.assertEqual(len(requests), 2)

    def test_has_one_deadline_for_all_tries(self):
        requests, second = [], []

        def slow(handler):
            requests.append(handler)
            if len(requests) == 1:
                time.sleep(2.5)
                reply(handler, 503)
                return
            begin = time.monotonic()
            handler.rfile.read(1)  # until curl ends the connection
            second.append(time.monotonic() - begin)

        self.push(*[self.upstream(slow) for _ in range(4)])
        self.assertEqual(self.curl("-s", "-m5", self.url, LBD_RETRIES="3")[0], 28)
        until(lambda: second, "the second try has ended")
        self.assertEqual(len(requests), 2)
        self.assertLess(second[0], 4)  # it had what was left of 5 s

    def test_retries_after_the_timeout_of_a_connection(self):
        upstream = self.upstream()
        self.push(upstream, self.closed(Silent()))
        for _ in range(4):
            output = self.succeeds("-sS", "--connect-timeout", "0.2", "-m", "10", self.url)
            self.assertEqual(output.decode(), upstream.address)

    def test_limits_the_time_to_connect(self):
        upstream, silent = self.upstream(), self.closed(Silent())
        self.push(upstream, silent)
        with open(os.path.join(self.directory, ".curlrc"), "w") as file:
            file.write("write-out = read\n")
        for first, read in (("-q", ""), ("--disable", ""), ("-qsS", ""), ("-sS", "read")):
            for _ in range(2):
                output = self.succeeds(first, "-sS", self.url, LBD_CONNECT_TIMEOUT="0.2")
                self.assertEqual(output.decode(), upstream.address + read, first)
        self.daemon.push("silent", [silent.address])
        self.assertEqual(self.curl("-m9", "http://silent.lbd/", LBD_CONNECT_TIMEOUT="0.2")[0], 28)
        self.assertEqual(self.curl("http://silent.lbd/", LBD_CONNECT_TIMEOUT="soon")[0], 105)

    def test_leaves_the_time_to_connect_to_a_config_file(self):
        self.push(self.closed(Silent()))
        config = os.path.join(self.directory, "config")
        with open(config, "w") as file:
            file.write("connect-timeout = 0.2\n")
        result, _, messages = self.curl("-sS", "-m9", "-K", config, self.url)
        self.assertEqual(result, 28)
        self.assertLess(int(re.search(r"after (\d+) m", messages)[1]), 4000, messages)

    def test_stops_when_nobody_reads(self):
        upstreams = [self.upstream(lambda handler: reply(handler, 200, BINARY)) for _ in range(2)]
        self.push(*upstreams)
        process = self.start("-s", self.url, LBD_MODE="lease")
        process.stdout.read(1)
        process.stdout.close()
        self.assertEqual(process.wait(120), 23)
        self.assertEqual(sum(len(upstream.requests) for upstream in upstreams), 1)
        self.assertEqual(self.daemon.ended(self.cluster, "cancelled"), 1)
