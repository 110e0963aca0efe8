"""Sends requests to the endpoints that lbd picks: one with a lease, then some from a batch that a long poll updates.
pick.py CLUSTER; LBD is the URL of lbd (default http://localhost:8080). Needs only Python 3."""
import itertools, json, os, random, sys, threading, time, urllib.parse, urllib.request

LBD, cluster = os.environ.get("LBD", "http://localhost:8080"), urllib.parse.quote(sys.argv[1], safe="")

def call(method, path, body=None):
    with urllib.request.urlopen(urllib.request.Request(LBD + path, body, method=method), timeout=60) as answer:
        return json.load(answer)

def leased(work):  # counts as in flight until done: for circuit breaking, or for long requests
    pick, outcome = call("POST", f"/pick?cluster={cluster}&ttl=30s"), "error"
    try:
        work(pick["address"])
        outcome = "success"
    finally:
        call("POST", f"/v1/leases/{pick['lease']['id']}/done", json.dumps({"outcome": outcome}).encode())

class Batch:  # the cheap way: 100 picks in one answer, again when the cluster changes, and at least every 30 s
    def __init__(self):
        self.fetch()
        threading.Thread(target=self.follow, daemon=True).start()
    def fetch(self):
        answer = call("GET", f"/pick?cluster={cluster}&n=100")
        refused = sum(answer["dropped"].values()) + answer["circuit_broken"]
        turns = [p["address"] for p in answer["picks"]] + [None] * refused  # None: drop this request
        random.shuffle(turns)
        self.generation, self.turns = answer["generation"], itertools.cycle(turns)
    def follow(self):
        while True:
            try:
                call("GET", f"/v1/clusters/{cluster}?endpoints=false&index={self.generation}&wait=30s")
                self.fetch()
            except OSError:  # lbd is unreachable or refuses: keep using the last batch
                time.sleep(1)

leased(lambda address: print("leased:", address))
batch = Batch()
print("batch:", *(next(batch.turns) for _ in range(3)))
