"""Leases, and how lbd-curl ends."""

import contextlib
import datetime
import os
import signal
import time

from case import Case
from daemon import DEADLINE, until
from test_lbd import Answers, answer
from upstream import Held, Refused, half, reply, status


class LeaseTest(Case):
    def lease(self, *arguments, **settings):
        return self.curl("-sS", self.url, *arguments, LBD_MODE="lease", **settings)

    def test_outcomes(self):
        cases = [
            (None, [], 0, "success"),
            (status(404), [], 0, "success"),
            (status(404), ["-f"], 22, "success"),
            (half, [], 18, "success"),
            (status(500), [], 0, "error"),
            (status(503), ["-f"], 22, "error"),
            (Held(), ["-m", "2"], 28, "error"),
            (None, ["-o", "/nowhere/x"], 23, "cancelled"),
        ]
        for number, (behave, arguments, result, outcome) in enumerate(cases):
            with self.subTest(outcome=outcome, arguments=arguments):
                self.cluster = f"outcomes-{number}"
                self.url = f"http://{self.cluster}.lbd/"
                self.push(self.upstream(behave))
                self.assertEqual(self.lease(*arguments)[0], result)
                self.assertEqual((self.daemon.ended(self.cluster, outcome), self.daemon.leases(self.cluster)), (1, []))

    def test_each_try_has_a_lease(self):
        self.push(self.upstream(status(503)), self.upstream(status(503)), self.closed(Refused()))
        self.lease()
        ended = [self.daemon.ended(self.cluster, outcome) for outcome in ("error", "unreachable")]
        self.assertEqual((ended, self.daemon.leases(self.cluster)), ([2, 1], []))

    def test_ttl_is_at_most_that_of_lbd(self):
        self.push(self.upstream())
        self.assertEqual(self.lease("-m", "1000")[0], 0)

    def test_names_its_owner(self):
        for owner, wanted in [("", r"^.+/\d+$"), ("web 7&x=1", "^web 7&x=1$")]:
            held = Held()
            self.push(self.upstream(held))
            process = self.start("-sS", self.url, "-m", "30", LBD_MODE="lease", LBD_OWNER=owner)
            held.arrived.wait(DEADLINE)
            self.assertRegex(self.daemon.leases(self.cluster)[0]["owner"], wanted)
            held.release()
            self.assertEqual(process.wait(DEADLINE), 0)

    def test_renews_long_requests(self):
        held = Held()
        self.push(self.upstream(held))
        process = self.start("-sS", self.url, LBD_MODE="lease", LBD_TTL="2")
        held.arrived.wait(DEADLINE)
        first = self.expiry()
        until(lambda: self.expiry() > first + 2, "it is renewed for longer than its ttl")
        held.release()
        self.assertEqual(process.communicate(timeout=DEADLINE)[1], b"")
        self.assertEqual(self.daemon.ended(self.cluster, "success"), 1)
        until(lambda: not self.group(process), "all processes have ended")

    def test_tries_a_renewal_again(self):
        """Three renewals fail, then one works, then all fail. The script sleep notes how long it would sleep."""
        held, renewals, pauses = Held(), [], os.path.join(self.directory, "pauses")

        def behave(handler):
            if "/renew?" not in handler.path:
                reply(handler, 200, b'{"address":"%s","lease":{"id":"A1"}}' % upstream.address.encode())
            else:
                renewals.append(handler.path)
                reply(handler, 200 if len(renewals) == 4 else 503, b"{}")

        upstream, lbd = self.upstream(held), self.upstream(behave)
        tools = os.path.join(self.directory, "tools")
        os.mkdir(tools)
        with open(os.path.join(tools, "sleep"), "w") as file:
            file.write(f'#!/bin/sh\necho "$1" >>{pauses}\n')
        os.chmod(file.name, 0o755)
        path = f"{tools}:{os.environ['PATH']}"
        process = self.start("-sS", self.url, LBD=f"http://{lbd.address}", LBD_MODE="lease", PATH=path)

        def noted():
            with open(pauses) as file:
                return file.read().split()

        until(lambda: len(renewals) == 13, "the renewals end")
        held.release()
        self.assertEqual(process.communicate(timeout=DEADLINE)[1], b"")
        self.assertEqual(noted(), ["15.0", "1.0", "1.0", "1.0", "15.0"] + ["1.0"] * 8)

    def test_renewal_does_not_hold_the_output(self):
        held = Held()
        self.push(self.upstream(held))
        process = self.start("-sS", self.url, LBD_MODE="lease")
        held.arrived.wait(DEADLINE)
        output = os.readlink(f"/proc/self/fd/{process.stdout.fileno()}")
        (renewal,) = until(lambda: [pid for pid in self.group(process) if self.name(pid) == "sleep"], "it is renewed")
        with open(f"/proc/{renewal}/stat") as file:
            parent = file.read().rpartition(")")[2].split()[1]
        for pid in (renewal, parent):
            self.assertNotIn(output, self.files(pid))
        held.release()
        self.assertEqual(process.wait(DEADLINE), 0)
        until(lambda: not self.group(process), "all processes have ended")

    @staticmethod
    def name(pid):
        """The name of a program, which may be one of busybox."""
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                return file.read().split("\0")[0].rpartition("/")[2]
        except OSError:
            return ""

    @staticmethod
    def files(pid):
        """What a process has open. Meanwhile, it may close some."""
        files = []
        for file in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                files.append(os.readlink(f"/proc/{pid}/fd/{file}"))
        return files

    def test_lease_of_a_killed_process_expires(self):
        held = Held()
        self.push(self.upstream(held))
        process = self.start("-sS", self.url, LBD_MODE="lease", LBD_TTL="1")
        held.arrived.wait(DEADLINE)
        process.kill()
        process.wait()
        until(lambda: self.daemon.ended(self.cluster, "expired") == 1, "the lease expires")

    def test_ends_soon_if_lbd_hangs_at_the_end(self):
        held = Held()
        self.push(self.upstream(held))
        process = self.start("-sS", self.url, LBD_MODE="lease")
        held.arrived.wait(DEADLINE)
        os.kill(self.daemon.process.pid, signal.SIGSTOP)
        try:
            held.release()
            self.assertEqual(process.wait(DEADLINE), 0)
        finally:
            os.kill(self.daemon.process.pid, signal.SIGCONT)

    def expiry(self):
        """When the lease expires, in seconds."""
        return datetime.datetime.fromisoformat(self.daemon.leases(self.cluster)[0]["expires_at"][:19]).timestamp()

    @staticmethod
    def group(process):
        """The processes that run in the session of a process."""
        members = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == process.pid and fields[0] != "Z":
                members.append(name)
        return members

    def test_signals_end_the_request_and_its_lease(self):
        for sent in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            for mode in ("lease", "pick"):
                with self.subTest(signal=sent, mode=mode):
                    self.cluster = f"signals-{int(sent)}-{mode}"
                    held = Held()
                    self.push(self.upstream(held))
                    process = self.start("-sS", f"http://{self.cluster}.lbd/", LBD_MODE=mode, LBD_TTL="20")
                    held.arrived.wait(DEADLINE)
                    process.send_signal(sent)
                    self.assertEqual(process.wait(DEADLINE), -sent)
                    self.assertTrue(held.gone.wait(DEADLINE))
                    self.assertEqual(process.communicate(), (b"", b""))
                    self.assertEqual(self.daemon.leases(self.cluster), [])
                    self.assertEqual(self.daemon.ended(self.cluster, "cancelled"), int(mode == "lease"))
                    until(lambda: not self.group(process), "all processes have ended")
                    self.assertEqual(os.listdir(self.temporary), [])

    def test_signals_at_any_time(self):
        """Nothing is left, whatever lbd-curl and its children are about to do, if it or all get a signal."""
        self.push(self.upstream())
        for delay in range(120):
            with self.subTest(delay=delay):
                process = self.start("-sS", self.url, LBD_MODE="lease", LBD_TTL="10")
                time.sleep(delay / 1000)
                [os.kill, os.killpg][delay % 2](process.pid, signal.SIGTERM)
                self.assertIn(process.wait(DEADLINE), (0, -signal.SIGTERM))
                until(lambda process=process: not self.group(process), "all processes have ended")
                self.assertEqual(os.listdir(self.temporary), [])
                until(lambda: not self.daemon.leases(self.cluster), "the lease has ended")
        # On a busy machine, lbd may not answer within the second that a process has at its end.
        self.assertLessEqual(self.daemon.ended(self.cluster, "expired"), 2)

    def test_signal_while_lbd_is_asked(self):
        ends = [lambda process: process.terminate(), lambda process: os.killpg(process.pid, signal.SIGTERM)]
        for number, end in enumerate(ends):  # one process, or all of them
            with self.subTest(number=number):
                lbd = self.closed(Answers(wait=True))
                process = self.start("-sS", self.url, LBD=lbd.lbd, LBD_MODE="lease")
                until(lambda: lbd.calls, "lbd is asked")
                end(process)
                self.assertEqual(process.wait(DEADLINE), -signal.SIGTERM)  # lbd has not answered
                self.assertEqual(os.listdir(self.temporary), [])
                granted = answer(b'{"address":"127.0.0.1:1","lease":{"id":"A1"}}', 201)
                lbd.send(granted)
                until(lambda: len(lbd.calls) == 2, "the lease that nobody waits for is ended")
                self.assertIn(b"POST /v1/leases/A1/done", lbd.calls[1])
                self.assertIn(b"cancelled", lbd.calls[1])

    def test_runs_without_standard_files(self):
        upstream = self.upstream()
        self.push(upstream)
        path = os.path.join(self.directory, "out")
        program = f'exec {" ".join(self.command())} -sS {self.url} -o {path} <&- 2>&-'
        self.assertEqual(self.script(program)[0], 0)
        with open(path) as file:
            self.assertEqual(file.read(), upstream.address)
