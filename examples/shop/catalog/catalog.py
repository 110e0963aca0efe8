"""The catalog of the shop: the text of each product, and how many pieces the service stock has of it."""

import json
import os
import signal
import sys
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import lbd

INSTANCE = os.environ.get("INSTANCE", "catalog")
PRODUCTS = {
    "tea": {"name": "Tea", "text": "Darjeeling, first flush, 100 g."},
    "coffee": {"name": "Coffee", "text": "Roasted on Monday, whole beans, 250 g."},
    "cup": {"name": "Cup", "text": "Stoneware, holds 0.3 l and the heat."},
    "kettle": {"name": "Kettle", "text": "Whistles at 100 °C."},
}

urllib.request.install_opener(lbd.opener(lbd.Client()))  # from now on, urlopen knows the hosts CLUSTER.lbd


def in_stock(product: str) -> dict:
    """What stock says of a product. Without it, there is still a text to show."""
    try:
        with urllib.request.urlopen(f"http://stock.lbd/stock/{product}", timeout=1.0) as response:
            return json.load(response)
    except (lbd.LbdError, OSError) as error:
        return {"error": str(error)}


class Catalog(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        product = self.path.removeprefix("/products/")
        if product in PRODUCTS:
            self.answer(200, {**PRODUCTS[product], "instance": INSTANCE, "stock": in_stock(product)})
        else:
            self.answer(404, {"error": f"{self.path} not found"})

    def answer(self, status: int, content: dict) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing: lbd counts the requests."""


signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the client sends its last report at exit
ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "9201"))), Catalog).serve_forever()
