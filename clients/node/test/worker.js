// A worker of cluster, or a worker thread, of the tests of processes.

import { Client } from "lbd-client";

const client = new Client();
for (let i = 0; i < 2; i++) await (await client.request(process.argv[2])).text();
process.send?.("sent");
