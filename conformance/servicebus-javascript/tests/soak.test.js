// Scenarios with a requested duration: conformance/soak runs them for minutes.
"use strict";

const assert = require("node:assert/strict");
const { describe } = require("node:test");
const { connect, fresh, scenarios, sleep } = require("../lib/kew.js");

describe("soak", { concurrency: true }, () => {
  scenarios({
    async "everything that is sent is processed once"(client, door) {
      const queue = fresh("renewed");
      const other = connect(door);
      const seen = new Set();
      let times = 0;
      let failed;
      try {
        other.createReceiver(queue).subscribe(
          {
            async processMessage({ body }) {
              times++;
              seen.add(body);
            },
            async processError({ error }) {
              failed ??= error;
            },
          },
          { maxConcurrentCalls: 4 },
        );
        const sender = client.createSender(queue);
        const end = Date.now() + Number(process.env.KEW_SOAK_SECONDS ?? 20) * 1_000;
        let sent = 0;
        while (Date.now() < end) {
          await sender.sendMessages({ body: sent++ });
          await sleep(25);
        }
        while (seen.size < sent && !failed && Date.now() < end + 60_000) await sleep(50);
        assert.deepEqual([seen.size, times, failed], [sent, sent, undefined]);
      } finally {
        await other.close();
      }
    },
  });
});
