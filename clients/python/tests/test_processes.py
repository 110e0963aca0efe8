"""What becomes of a client when its process forks or ends, with real processes."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import unittest

from daemon import Daemon, Upstream


class ProcessTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)
        cls.upstream = Upstream()
        cls.addClassCleanup(cls.upstream.close)

    def setUp(self):
        self.cluster = self._testMethodName.replace("_", "-")
        self.url = f"http://{self.cluster}.lbd/"
        self.daemon.push(self.cluster, [self.upstream.address])

    def reported(self):
        return self.daemon.metric(f'lbd_reported_requests_total{{cluster="{self.cluster}",outcome="success"}}')

    def in_flight(self):
        state = self.daemon.call("GET", f"/v1/clusters/{self.cluster}?endpoints=false")
        return state["circuit_breaker"]["in_flight"]

    def start(self, program, *arguments):
        program = f"import lbd\nclient = lbd.Client()\nurl = {self.url!r}\n" + textwrap.dedent(program)
        process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            env=os.environ | {"LBD": self.daemon.lbd},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        """Ends a program with the children that it forked."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.stdin.close()
        process.stdout.close()
        process.wait()

    def run_program(self, program):
        process = self.start(program)
        output, _ = process.communicate(timeout=120)
        self.assertEqual(process.returncode, 0, output)

    def test_reports_at_the_end_of_a_process(self):
        self.run_program("for _ in range(3): client.request('GET', url).read()")
        self.assertEqual(self.reported(), 3)

    def test_ends_leases_at_the_end_of_a_process(self):
        process = self.start(
            """
            client.close()
            client = lbd.Client(mode="lease")
            response = client.request("HEAD", url)
            kept = client.request("GET", url)
            print("open", flush=True)
            input()
            """
        )
        self.assertEqual(process.stdout.readline(), "open\n")
        self.assertGreaterEqual(self.in_flight(), 1)
        process.communicate("\n", timeout=120)
        self.assertEqual(self.in_flight(), 0)

    def test_reports_in_children_of_fork(self):
        self.run_program(
            """
            import os, sys
            client.request("GET", url).read()
            children = []
            for _ in range(3):
                pid = os.fork()
                if pid == 0:
                    for _ in range(5): client.request("GET", url).read()
                    sys.exit()
                children.append(pid)
            for pid in children:
                assert os.waitpid(pid, 0)[1] == 0
            client.request("GET", url).read()
            """
        )
        self.assertEqual(self.reported(), 17)

    def test_reports_in_children_that_a_server_forks_in_c(self):
        self.run_program(
            """
            import ctypes, os
            client.request("GET", url).read()
            pid = ctypes.PyDLL(None).fork()  # as uWSGI does: Python does not know
            if pid == 0:
                client.request("GET", url).read()
                client.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            """
        )
        self.assertEqual(self.reported(), 2)

    def test_forks_while_threads_send(self):
        self.run_program(
            """
            import os, sys, threading, warnings
            warnings.simplefilter("ignore")
            stop = threading.Event()
            def send():
                while not stop.is_set(): client.request("GET", url).read()
            threads = [threading.Thread(target=send) for _ in range(4)]
            for thread in threads: thread.start()
            for _ in range(20):
                pid = os.fork()
                if pid == 0:
                    client.request("GET", url, timeout=10).read()
                    os._exit(0)
                assert os.waitpid(pid, 0)[1] == 0
            stop.set()
            for thread in threads: thread.join()
            """
        )

    def test_reports_in_children_of_multiprocessing(self):
        for method, made_in_target in (("fork", False), ("fork", True), ("forkserver", False), ("spawn", False)):
            with self.subTest((method, made_in_target)), tempfile.TemporaryDirectory() as directory:
                reported = self.reported()
                program = os.path.join(directory, "program.py")
                with open(program, "w") as file:
                    file.write(
                        textwrap.dedent(
                            f"""
                            import multiprocessing
                            def make():
                                import lbd
                                return lbd.Client()
                            client = {"None" if made_in_target else "make()"}
                            def send(_):
                                (client or make()).request("GET", {self.url!r}).read()
                            if __name__ == "__main__":
                                context = multiprocessing.get_context({method!r})
                                children = [context.Process(target=send, args=(0,)) for _ in range(3)]
                                for child in children:
                                    child.start()
                                for child in children:
                                    child.join()
                                assert all(child.exitcode == 0 for child in children)
                            """
                        )
                    )
                environ = os.environ | {"LBD": self.daemon.lbd}
                subprocess.run([sys.executable, program], env=environ, check=True, timeout=120)
                self.assertEqual(self.reported() - reported, 3)

    def test_ends_with_a_signal(self):
        process = self.start("client.request('GET', url).read()\nprint('sent', flush=True)\ninput()")
        self.assertEqual(process.stdout.readline(), "sent\n")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(120), -signal.SIGTERM)
        process.communicate()

    def test_ends_while_lbd_hangs(self):
        process = self.start("client.request('GET', url).read()\nprint('sent', flush=True)\ninput()")
        self.assertEqual(process.stdout.readline(), "sent\n")
        os.kill(self.daemon._process.pid, signal.SIGSTOP)
        try:
            process.communicate("\n", timeout=120)
            self.assertEqual(process.returncode, 0)
        finally:
            os.kill(self.daemon._process.pid, signal.SIGCONT)


if __name__ == "__main__":
    unittest.main()
