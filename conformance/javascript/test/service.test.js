import assert from "node:assert/strict";
import { test } from "node:test";

import { QueueClient, QueueServiceClient } from "@azure/storage-queue";

import { NO_RETRIES, refused, scenarios } from "../lib/kew.js";

const METRICS = {
  version: "1.0",
  enabled: true,
  includeAPIs: true,
  retentionPolicy: { enabled: true, days: 3 },
};
const CHANGED = {
  queueAnalyticsLogging: {
    version: "1.0",
    deleteProperty: true,
    read: true,
    write: false,
    retentionPolicy: { enabled: true, days: 365 },
  },
  hourMetrics: METRICS,
  minuteMetrics: { ...METRICS, includeAPIs: false },
  cors: [
    {
      allowedOrigins: "https://app.example,https://other.example",
      allowedMethods: "GET,PUT",
      allowedHeaders: "x-ms-meta-*,content-type",
      exposedHeaders: "x-ms-*",
      maxAgeInSeconds: 60,
    },
    {
      allowedOrigins: "*",
      allowedMethods: "GET",
      allowedHeaders: "",
      exposedHeaders: "",
      maxAgeInSeconds: 0,
    },
  ],
};

function settings({ queueAnalyticsLogging, hourMetrics, minuteMetrics, cors }) {
  return JSON.parse(JSON.stringify({ queueAnalyticsLogging, hourMetrics, minuteMetrics, cors }));
}

scenarios("the service", (door) => {
  const secondary = (path = "") =>
    new QueueServiceClient(door.url({ secondary: true }) + path, door.credential, NO_RETRIES);

  test("its properties are kept, and what is left out stays", async () => {
    const before = await door.service.getProperties();
    assert.ok(before.queueAnalyticsLogging && before.hourMetrics && before.minuteMetrics);
    const set = await door.service.setProperties(CHANGED);
    assert.equal(set._response.status, 202);
    assert.deepEqual(settings(await door.service.getProperties()), settings(CHANGED));
    await door.service.setProperties({ minuteMetrics: METRICS });
    assert.deepEqual(
      settings(await door.service.getProperties()),
      settings({ ...CHANGED, minuteMetrics: METRICS }),
    );
    await door.service.setProperties({ cors: [] });
    assert.deepEqual((await door.service.getProperties()).cors ?? [], []);
  });

  test("properties that are not allowed", async () => {
    const retention = { version: "1.0", enabled: true, includeAPIs: true };
    for (const days of [0, 366]) {
      const hourMetrics = { ...retention, retentionPolicy: { enabled: true, days } };
      await assert.rejects(door.service.setProperties({ hourMetrics }), { statusCode: 400 });
    }
    const cors = Array.from({ length: 6 }, () => CHANGED.cors[1]);
    await assert.rejects(door.service.setProperties({ cors }), { statusCode: 400 });
  });

  test("a browser is told what its origin may do", async () => {
    await door.service.setProperties(CHANGED);
    const { name } = await door.fresh();
    // By hand: no SDK sends a preflight.
    const url = `http://127.0.0.1:${door.port}/${door.account}/${name}`;
    const asked = (origin, method) =>
      fetch(url, {
        method: "OPTIONS",
        headers: { origin, "access-control-request-method": method },
      });
    const allowed = await asked("https://app.example", "PUT");
    assert.equal(allowed.status, 200);
    assert.equal(allowed.headers.get("access-control-allow-origin"), "https://app.example");
    assert.equal(allowed.headers.get("access-control-max-age"), "60");
    const denied = await asked("https://evil.example", "PUT");
    assert.equal(denied.status, 403);
    assert.equal(denied.headers.get("x-ms-error-code"), "CorsPreflightFailure");
    await door.service.setProperties({ cors: [] });
  });

  test("statistics, from the secondary alone", async () => {
    const { _response: answer } = await secondary().getStatistics();
    // 12.32.0 finds nothing in it: it expects another name of the root element than the service's.
    assert.match(answer.bodyAsText, /<Status>live<\/Status><LastSyncTime>[^<]+ GMT<\/LastSyncTime>/);
    await refused(400, "InvalidQueryParameterValue", door.service.getStatistics());
  });

  test("the secondary reads and does not write", async () => {
    const queue = await door.fresh({ colour: "green" });
    await queue.sendMessage("text");
    const other = new QueueClient(
      `${door.url({ secondary: true })}/${queue.name}`,
      door.credential,
      NO_RETRIES,
    );
    assert.equal((await other.getProperties()).metadata.colour, "green");
    assert.equal((await other.peekMessages()).peekedMessageItems.length, 1);
    for (const operation of [() => other.sendMessage("x"), () => other.receiveMessages()]) {
      await refused(403, "InsufficientAccountPermissions", operation());
    }
  });
});
