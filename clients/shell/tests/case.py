"""What all tests have: lbd, and lbd-curl in the shell LBD_TEST_SHELL."""

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import unittest

from daemon import DEADLINE, Daemon
from upstream import Upstream

SHELL = shlex.split(os.environ.get("LBD_TEST_SHELL", "sh"))
LBD_CURL = os.environ.get("LBD_CURL", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../lbd-curl"))

# In the background of a script, and with nohup, these are ignored: lbd-curl would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon()
        cls.addClassCleanup(cls.daemon.close)

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.cluster = self._testMethodName.removeprefix("test_").replace("_", "-")
        self.url = f"http://{self.cluster}.lbd/"
        temporary = os.path.join(self.directory, "tmp")
        os.mkdir(temporary)
        self.temporary = temporary

    def upstream(self, behave=None, **options):
        return self.closed(Upstream(behave, **options))

    def closed(self, item):
        """The item, which is closed after the test."""
        self.addCleanup(item.close)
        return item

    def push(self, *upstreams, **options):
        """Pushes upstreams, or addresses, to the cluster of the test."""
        addresses = [item if isinstance(item, str) else item.address for item in upstreams]
        self.daemon.push(self.cluster, addresses, **options)

    def environment(self, settings):
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LBD")}
        return kept | {"LBD": self.daemon.lbd, "TMPDIR": self.temporary, "HOME": self.directory} | settings

    @staticmethod
    def command():
        return [*SHELL, LBD_CURL]

    def start(self, *arguments, stdin=subprocess.DEVNULL, **settings):
        """Starts lbd-curl in a process group of its own."""
        process = subprocess.Popen(
            [*self.command(), *arguments],
            env=self.environment(settings),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.addCleanup(self._end, process)
        return process

    @staticmethod
    def _end(process):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe:
                pipe.close()

    def curl(self, *arguments, data=None, **settings):
        """Runs lbd-curl. Returns its exit status, output and messages."""
        settings["TMPDIR"] = tempfile.mkdtemp(dir=self.directory)
        process = self.start(*arguments, stdin=subprocess.DEVNULL if data is None else subprocess.PIPE, **settings)
        output, messages = process.communicate(data, timeout=DEADLINE)
        self.assertEqual(os.listdir(settings["TMPDIR"]), [], "it left files")
        return process.returncode, output, messages.decode()

    def succeeds(self, *arguments, **settings):
        """Runs lbd-curl, which must succeed without a message. Returns its output."""
        result, output, messages = self.curl(*arguments, **settings)
        self.assertEqual((result, messages), (0, ""))
        return output

    def script(self, program, **settings):
        """Runs a program that uses the library."""
        library = os.path.realpath(LBD_CURL).rpartition("/bin/")[0] + "/share/lbd"
        if not os.path.isdir(library):
            library = os.path.dirname(os.path.realpath(LBD_CURL))
        done = subprocess.run(
            [*SHELL, "-c", f'. "{library}/lbd.sh"\n' + program],
            env=self.environment(settings),
            capture_output=True,
            timeout=DEADLINE,
            text=True,
        )
        return done.returncode, done.stdout, done.stderr
