"""Calls a cluster's endpoints by lbd's picks: once under a lease, then by a batch of picks that a long poll keeps fresh.
pick.py CLUSTER; LBD is where lbd listens (http://localhost:8080). Needs nothing but Python 3."""
import itertools, json, os, random, sys, threading, time, urllib.parse, urllib.request

LBD, cluster = os.environ.get("LBD", "http://localhost:8080"), urllib.parse.quote(sys.argv[1], safe="")

def call(method, path, body=None):
    with urllib.request.urlopen(urllib.request.Request(LBD + path, body, method=method), timeout=60) as answer:
        return json.load(answer)

def leased(work):  # in flight from the pick to done: for circuit breaking, or where requests are long
    pick, outcome = call("POST", f"/pick?cluster={cluster}&ttl=30s"), "error"
    try:
        work(pick["address"])
        outcome = "success"
    finally:
        call("POST", f"/v1/leases/{pick['lease']['id']}/done", json.dumps({"outcome": outcome}).encode())

class Batch:  # the cheap way: 100 picks in one answer, again when the cluster changes, and every 30 s in any case
    def __init__(self):
        self.fetch()
        threading.Thread(target=self.follow, daemon=True).start()
    def fetch(self):
        answer = call("GET", f"/pick?cluster={cluster}&n=100")
        refused = sum(answer["dropped"].values()) + answer["circuit_broken"]
        turns = [p["address"] for p in answer["picks"]] + [None] * refused  # None: shed this request
        random.shuffle(turns)
        self.generation, self.turns = answer["generation"], itertools.cycle(turns)
    def follow(self):
        while True:
            try:
                call("GET", f"/v1/clusters/{cluster}?endpoints=false&index={self.generation}&wait=30s")
                self.fetch()
            except OSError:  # lbd is away or refuses: the picks that are there stay in use
                time.sleep(1)

leased(lambda address: print("leased:", address))
batch = Batch()
print("batch:", *(next(batch.turns) for _ in range(3)))
