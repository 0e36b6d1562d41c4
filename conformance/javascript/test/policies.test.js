import assert from "node:assert/strict";
import { test } from "node:test";

import { refused, scenarios } from "../lib/kew.js";

const STARTS = new Date("2026-01-02T03:04:05.678Z");
const EXPIRES = new Date("2099-12-31T00:00:00Z");

function identifier(id, permissions = "raup") {
  return { id, accessPolicy: { startsOn: STARTS, expiresOn: EXPIRES, permissions } };
}

scenarios("access policies", (door) => {
  test("a new queue has none", async () => {
    const queue = await door.fresh();
    assert.deepEqual((await queue.getAccessPolicy()).signedIdentifiers, []);
  });

  test("five are kept as they were given, replaced and cleared", async () => {
    const queue = await door.fresh();
    const five = ["a", "b", "with space & <signs>", "ä", "x".repeat(64)].map((id) =>
      identifier(id),
    );
    await queue.setAccessPolicy(five);
    assert.deepEqual((await queue.getAccessPolicy()).signedIdentifiers, five);
    await queue.setAccessPolicy([identifier("only", "r")]);
    assert.deepEqual((await queue.getAccessPolicy()).signedIdentifiers, [identifier("only", "r")]);
    await queue.setAccessPolicy([]);
    assert.deepEqual((await queue.getAccessPolicy()).signedIdentifiers, []);
  });

  test("parts of a policy can be absent", async () => {
    const queue = await door.fresh();
    await queue.setAccessPolicy([
      { id: "permissions", accessPolicy: { permissions: "p" } },
      { id: "expiry", accessPolicy: { expiresOn: EXPIRES } },
    ]);
    const read = (await queue.getAccessPolicy()).signedIdentifiers;
    assert.deepEqual(
      read.map(({ id, accessPolicy }) => [id, accessPolicy.permissions, accessPolicy.expiresOn]),
      [
        ["permissions", "p", undefined],
        ["expiry", undefined, EXPIRES],
      ],
    );
  });

  test("what is not allowed changes nothing", async () => {
    const queue = await door.fresh();
    await queue.setAccessPolicy([identifier("kept")]);
    const six = [1, 2, 3, 4, 5, 6].map((number) => identifier(String(number)));
    await refused(400, "InvalidXmlDocument", queue.setAccessPolicy(six));
    for (const bad of [identifier("x".repeat(65)), identifier("letters", "rw")]) {
      await assert.rejects(queue.setAccessPolicy([bad]), { statusCode: 400 });
    }
    assert.deepEqual((await queue.getAccessPolicy()).signedIdentifiers, [identifier("kept")]);
  });

  test("of a queue that is not there", async () => {
    await refused(404, "QueueNotFound", door.absent().getAccessPolicy());
    await refused(404, "QueueNotFound", door.absent().setAccessPolicy([identifier("a")]));
  });
});
