import assert from "node:assert/strict";
import { test } from "node:test";

import { refused, scenarios } from "../lib/kew.js";

async function namesOf(queues) {
  const found = [];
  for await (const queue of queues) {
    found.push(queue.name);
  }
  return found;
}

scenarios("queues", (door) => {
  test("create and delete", async () => {
    const queue = door.absent();
    const created = await queue.create();
    assert.equal(created._response.status, 201);
    assert.ok(created.requestId && created.version && created.date);
    await queue.delete();
    await refused(404, "QueueNotFound", queue.getProperties());
    await refused(404, "QueueNotFound", queue.delete());
  });

  test("create again with the same and with other metadata", async () => {
    const queue = await door.fresh({ colour: "green" });
    const again = await queue.create({ metadata: { colour: "green" } });
    assert.equal(again._response.status, 204);
    for (const metadata of [{ colour: "blue" }, {}, { colour: "green", size: "1" }]) {
      await refused(409, "QueueAlreadyExists", queue.create({ metadata }));
    }
    assert.deepEqual((await queue.getProperties()).metadata, { colour: "green" });
  });

  test("create if it is not there", async () => {
    const queue = door.absent();
    assert.equal((await queue.createIfNotExists()).succeeded, true);
    assert.equal((await queue.createIfNotExists()).succeeded, false);
    const other = await queue.createIfNotExists({ metadata: { colour: "blue" } });
    assert.equal(other.succeeded, false);
    assert.equal(other.errorCode, "QueueAlreadyExists");
  });

  test("exists, and delete if it is there", async () => {
    const queue = door.absent();
    assert.equal(await queue.exists(), false);
    assert.equal((await queue.deleteIfExists()).succeeded, false);
    await queue.create();
    assert.equal(await queue.exists(), true);
    assert.equal((await queue.deleteIfExists()).succeeded, true);
    assert.equal(await queue.exists(), false);
  });

  test("a queue that is created again is empty", async () => {
    const queue = await door.fresh();
    await queue.sendMessage("old");
    await queue.delete();
    await queue.create();
    assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
  });

  test("names that are not allowed", async () => {
    for (const name of ["ab", "a".repeat(64)]) {
      await refused(400, "OutOfRangeInput", door.service.createQueue(name));
    }
    for (const name of ["Abc", "a--b", "-abc", "abc-", "a_b", "aüb"]) {
      await refused(400, "InvalidResourceName", door.service.createQueue(name));
    }
  });

  test("metadata is replaced and cleared", async () => {
    const queue = await door.fresh({ Colour: "Green" });
    await queue.setMetadata({ FooBar: "a  b", _x1: "y", plain: "a=b;c,d/e" });
    // The SDK sends and shows the names in lower case.
    const metadata = { foobar: "a  b", _x1: "y", plain: "a=b;c,d/e" };
    assert.deepEqual((await queue.getProperties()).metadata, metadata);
    const listed = door.service.listQueues({ prefix: queue.name, includeMetadata: true });
    const { value } = await listed.next();
    assert.deepEqual(value.metadata, metadata);
    await queue.setMetadata();
    assert.deepEqual((await queue.getProperties()).metadata ?? {}, {});
  });

  test("metadata whose names are signed in an order of their own", async () => {
    const queue = await door.fresh();
    const metadata = { a_b: "1", ab: "2", a_: "3", ab1: "4", a1: "5", a_1: "6" };
    await queue.setMetadata(metadata);
    assert.deepEqual((await queue.getProperties()).metadata, metadata);
  });

  test("metadata that is not allowed", async () => {
    const queue = await door.fresh();
    await queue.setMetadata({ k: "v".repeat(8191) });
    await refused(400, "MetadataTooLarge", queue.setMetadata({ k: "v".repeat(8192) }));
    await refused(400, "InvalidMetadata", queue.setMetadata({ "1bad": "v" }));
    assert.equal((await queue.getProperties()).metadata.k.length, 8191);
  });

  test("the count includes hidden messages", async () => {
    const queue = await door.fresh();
    await queue.sendMessage("now");
    await queue.sendMessage("later", { visibilityTimeout: 600 });
    await queue.receiveMessages({ visibilityTimeout: 600 });
    assert.equal((await queue.getProperties()).approximateMessagesCount, 2);
    await queue.clearMessages();
    assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
  });

  test("list with a prefix, sorted, in pages of every size", async () => {
    const prefix = door.absent().name;
    const made = ["3", "1", "6", "5", "0", "4", "2"].map((end) => `${prefix}-${end}`);
    for (const name of made) {
      await door.service.createQueue(name);
    }
    const sorted = made.toSorted();
    assert.deepEqual(await namesOf(door.service.listQueues({ prefix })), sorted);
    for (const maxPageSize of [1, 2, 7, 5000]) {
      const found = [];
      const pages = door.service.listQueues({ prefix }).byPage({ maxPageSize });
      for await (const page of pages) {
        assert.ok(page.queueItems.length <= maxPageSize);
        assert.equal(page.prefix, prefix);
        found.push(...page.queueItems.map((queue) => queue.name));
      }
      assert.deepEqual(found, sorted, `pages of ${maxPageSize}`);
    }
    const first = await door.service.listQueues({ prefix }).byPage({ maxPageSize: 3 }).next();
    const { continuationToken } = first.value;
    const rest = [];
    for await (const page of door.service.listQueues({ prefix }).byPage({ continuationToken })) {
      rest.push(...page.queueItems.map((queue) => queue.name));
    }
    assert.deepEqual(rest, sorted.slice(3));
    assert.deepEqual(await namesOf(door.service.listQueues({ prefix: `${prefix}-x` })), []);
  });

  test("list with odd prefixes", async () => {
    for (const prefix of ["a+b", "a b", "a%2Bb", "a/b", "ä", "a=b&c=d", "'"]) {
      assert.deepEqual(await namesOf(door.service.listQueues({ prefix })), [], prefix);
    }
  });
});
