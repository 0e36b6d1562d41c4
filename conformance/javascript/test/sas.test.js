import assert from "node:assert/strict";
import { test } from "node:test";

import {
  AccountSASPermissions,
  QueueClient,
  QueueSASPermissions,
  QueueServiceClient,
  SASProtocol,
} from "@azure/storage-queue";

import { NO_RETRIES, refused, scenarios } from "../lib/kew.js";

const soon = () => new Date(Date.now() + 600_000);
const past = () => new Date(Date.now() - 600_000);

// The operations that a queue's signature allows, by its letters.
const NEEDS = {
  r: [(queue) => queue.getProperties(), (queue) => queue.peekMessages()],
  a: [(queue) => queue.sendMessage("text")],
  u: [(queue, m) => queue.updateMessage(m.messageId, m.popReceipt, "new", 0)],
  p: [
    (queue, m) => queue.deleteMessage(m.messageId, m.popReceipt),
    (queue) => queue.receiveMessages(),
  ],
};

// The same with an account's signature, which distinguishes more operations.
const ACCOUNT_NEEDS = [
  ["c", "r", (queue) => queue.getProperties()],
  ["c", "w", (queue) => queue.setMetadata({ a: "b" })],
  ["o", "r", (queue) => queue.peekMessages()],
  ["o", "a", (queue) => queue.sendMessage("text")],
  ["o", "u", (queue, m) => queue.updateMessage(m.messageId, m.popReceipt, "new", 0)],
  ["o", "p", (queue) => queue.receiveMessages()],
  ["o", "p", (queue, m) => queue.deleteMessage(m.messageId, m.popReceipt)],
  ["o", "d", (queue) => queue.clearMessages()],
  ["c", "d", (queue) => queue.delete()],
];

scenarios("shared access signatures", (door) => {
  for (const [letter, operations] of Object.entries(NEEDS)) {
    test(`a queue's signature with ${letter} alone`, async () => {
      for (const operation of operations) {
        const queue = await door.fresh();
        const message = await queue.sendMessage("text");
        const signed = (permissions) =>
          door.bySas(
            queue.generateSasUrl({
              permissions: QueueSASPermissions.parse(permissions),
              startsOn: past(),
              expiresOn: soon(),
            }),
          );
        const others = "raup".replace(letter, "");
        const code = "AuthorizationPermissionMismatch";
        await refused(403, code, operation(signed(others), message));
        await operation(signed(letter), message);
      }
    });
  }

  test("a queue's signature is for that queue and for no administration", async () => {
    const [queue, other] = [await door.fresh(), await door.fresh()];
    const permissions = QueueSASPermissions.parse("raup");
    const url = queue.generateSasUrl({ permissions, expiresOn: soon() });
    await refused(
      403,
      "AuthenticationFailed",
      door.bySas(url.replace(queue.name, other.name)).getProperties(),
    );
    for (const operation of [(q) => q.setMetadata({ a: "b" }), (q) => q.delete(), (q) => q.clearMessages()]) {
      await assert.rejects(operation(door.bySas(url)), { statusCode: 403 });
    }
  });

  test("a signature that is over, not yet good, or altered", async () => {
    const queue = await door.fresh();
    const permissions = QueueSASPermissions.parse("raup");
    for (const options of [
      { expiresOn: past() },
      { startsOn: soon(), expiresOn: new Date(Date.now() + 1200_000) },
    ]) {
      const url = queue.generateSasUrl({ permissions, ...options });
      await refused(403, "AuthenticationFailed", door.bySas(url).getProperties());
    }
    const read = QueueSASPermissions.parse("r");
    const url = queue.generateSasUrl({ permissions: read, expiresOn: soon() });
    await refused(
      403,
      "AuthenticationFailed",
      door.bySas(url.replace("sp=r", "sp=raup")).getProperties(),
    );
  });

  test("from some addresses and by some protocols", async () => {
    const queue = await door.fresh();
    const permissions = QueueSASPermissions.parse("r");
    const made = (options) =>
      door.bySas(queue.generateSasUrl({ permissions, expiresOn: soon(), ...options }));
    await made({ ipRange: { start: "127.0.0.1" } }).getProperties();
    await made({ ipRange: { start: "127.0.0.0", end: "127.0.0.255" } }).getProperties();
    await refused(
      403,
      "AuthorizationSourceIPMismatch",
      made({ ipRange: { start: "192.0.2.1" } }).getProperties(),
    );
    await made({ protocol: SASProtocol.HttpsAndHttp }).getProperties();
    const httpsOnly = made({ protocol: SASProtocol.Https }).getProperties();
    if (door.scheme === "https") {
      await httpsOnly;
    } else {
      await refused(403, "AuthorizationProtocolMismatch", httpsOnly);
    }
  });

  test("a signature under a stored policy ends with the policy", async () => {
    const queue = await door.fresh();
    const policy = { permissions: "ra", expiresOn: soon() };
    await queue.setAccessPolicy([{ id: "stored", accessPolicy: policy }]);
    const signed = door.bySas(queue.generateSasUrl({ identifier: "stored" }));
    await signed.sendMessage("text");
    await refused(403, "AuthorizationPermissionMismatch", signed.receiveMessages());
    await queue.setAccessPolicy([
      { id: "stored", accessPolicy: { ...policy, permissions: "p" } },
    ]);
    assert.equal((await signed.receiveMessages()).receivedMessageItems.length, 1);
    await refused(403, "AuthorizationPermissionMismatch", signed.sendMessage("text"));
    await queue.setAccessPolicy([{ id: "stored", accessPolicy: { ...policy, expiresOn: past() } }]);
    await refused(403, "AuthenticationFailed", signed.sendMessage("text"));
    await queue.setAccessPolicy([]);
    await refused(403, "AuthenticationFailed", signed.sendMessage("text"));
  });

  test("an account's signature allows what its letters say", async () => {
    for (const [type, letter, operation] of ACCOUNT_NEEDS) {
      const queue = await door.fresh();
      const message = await queue.sendMessage("text");
      const signed = (permissions, types) => {
        const parsed = AccountSASPermissions.parse(permissions);
        const url = new URL(door.service.generateAccountSasUrl(soon(), parsed, types));
        return new QueueClient(`${door.url()}/${queue.name}${url.search}`, undefined, NO_RETRIES);
      };
      const others = "rwdlacup".replace(letter, "");
      const called = `${type} ${letter} ${operation}`;
      await assert.rejects(
        operation(signed(others, "sco"), message),
        { statusCode: 403, code: "AuthorizationPermissionMismatch" },
        called,
      );
      await assert.rejects(
        operation(signed(letter, "sco".replace(type, "")), message),
        { statusCode: 403, code: "AuthorizationResourceTypeMismatch" },
        called,
      );
      await operation(signed(letter, type), message);
    }
  });

  test("an account's signature for the service and for making queues", async () => {
    const all = AccountSASPermissions.parse("rwdlacup");
    const url = door.service.generateAccountSasUrl(soon(), all, "sco");
    const service = new QueueServiceClient(url, undefined, NO_RETRIES);
    const queue = door.absent();
    await service.createQueue(queue.name);
    const found = [];
    for await (const item of service.listQueues({ prefix: queue.name })) {
      found.push(item.name);
    }
    assert.ok(found.includes(queue.name));
    const policies = service.getQueueClient(queue.name).getAccessPolicy();
    await assert.rejects(policies, { statusCode: 403 });
    await service.deleteQueue(queue.name);
  });
});
