import assert from "node:assert/strict";
import { test } from "node:test";

import { eventually, refused, scenarios } from "../lib/kew.js";

const LIMIT = 65536;
const WEEK_MS = 7 * 24 * 3600 * 1000;
const RECEIPT = Buffer.alloc(16).toString("base64");

const TEXTS = {
  markup: `<a href="x" b='y'>&amp; &lt; &#65; ]]> <![CDATA[x]]> <!-- c --></a>`,
  unicode: "äöü ß 中文 العربية 🐦🦆 𝄞 e\u0301 \u{10fffd}",
  "white space around": "  \t text \t  ",
  "white space only": "   ",
  lines: "one\ntwo\n\nthree\n",
  "plus and percent": "a+b %2B %zz ?&=#",
  json: '{"a": [1, 2.5, null]}',
  number: "0012",
  empty: "",
};

const texts = (items) => items.map((item) => item.messageText);

async function receive(queue, options = { visibilityTimeout: 600 }) {
  return (await queue.receiveMessages(options)).receivedMessageItems;
}

async function peek(queue, numberOfMessages = 32) {
  return (await queue.peekMessages({ numberOfMessages })).peekedMessageItems;
}

scenarios("messages", (door) => {
  test("send and receive answer with everything", async () => {
    const queue = await door.fresh();
    const sent = await queue.sendMessage("text");
    assert.ok(sent.messageId && sent.popReceipt && sent.requestId);
    assert.ok(Math.abs(sent.insertedOn - Date.now()) < 20_000);
    assert.equal(sent.expiresOn - sent.insertedOn, WEEK_MS);
    assert.deepEqual(sent.nextVisibleOn, sent.insertedOn);
    const [received] = await receive(queue, { visibilityTimeout: 60 });
    assert.equal(received.messageId, sent.messageId);
    assert.equal(received.messageText, "text");
    assert.equal(received.dequeueCount, 1);
    assert.deepEqual(received.insertedOn, sent.insertedOn);
    assert.deepEqual(received.expiresOn, sent.expiresOn);
    assert.notEqual(received.popReceipt, sent.popReceipt);
    assert.ok(Math.abs(received.nextVisibleOn - Date.now() - 60_000) < 20_000);
  });

  for (const [name, text] of Object.entries(TEXTS)) {
    test(`text: ${name}`, async () => {
      const queue = await door.fresh();
      await queue.sendMessage(text);
      assert.deepEqual(texts(await peek(queue)), [text]);
      const [received] = await receive(queue);
      assert.equal(received.messageText, text);
      await queue.updateMessage(received.messageId, received.popReceipt, text, 0);
      assert.deepEqual(texts(await peek(queue)), [text]);
    });
  }

  test("64 KiB fit and one byte more does not", async () => {
    const queue = await door.fresh();
    for (const text of ["x".repeat(LIMIT), "<".repeat(LIMIT), "🐦".repeat(LIMIT / 4)]) {
      await queue.sendMessage(text);
      const [received] = await receive(queue);
      assert.equal(received.messageText, text);
      await queue.deleteMessage(received.messageId, received.popReceipt);
    }
    const tooLong = "x".repeat(LIMIT + 1);
    const error = await refused(413, "RequestBodyTooLarge", queue.sendMessage(tooLong));
    assert.match(error.response.bodyAsText, new RegExp(`<MaxLimit>${LIMIT}</MaxLimit>`));
    const sent = await queue.sendMessage("small");
    await refused(
      413,
      "RequestBodyTooLarge",
      queue.updateMessage(sent.messageId, sent.popReceipt, tooLong, 0),
    );
    assert.deepEqual(texts(await peek(queue)), ["small"]);
  });

  test("characters that XML forbids", async () => {
    const queue = await door.fresh();
    await refused(400, "InvalidXmlDocument", queue.sendMessage("a\u0001b"));
  });

  test("time to live: short, endless, longest, and not allowed", async () => {
    const queue = await door.fresh();
    const endless = await queue.sendMessage("endless", { messageTimeToLive: -1 });
    assert.equal(endless.expiresOn.toISOString(), "9999-12-31T23:59:59.000Z");
    const long = await queue.sendMessage("long", { messageTimeToLive: 2 ** 31 - 1 });
    assert.equal(long.expiresOn - long.insertedOn, (2 ** 31 - 1) * 1000);
    for (const messageTimeToLive of [0, -2]) {
      await refused(
        400,
        "InvalidQueryParameterValue",
        queue.sendMessage("x", { messageTimeToLive }),
      );
    }
    await queue.clearMessages();
    await queue.sendMessage("short", { messageTimeToLive: 1 });
    await eventually("it expires", async () => (await peek(queue)).length === 0);
  });

  test("a delay: the message comes when its time has come", async () => {
    const queue = await door.fresh();
    const began = Date.now();
    const sent = await queue.sendMessage("later", { visibilityTimeout: 1 });
    assert.equal(sent.nextVisibleOn - sent.insertedOn, 1000);
    const [received] = await eventually("it is visible", async () => {
      const found = await receive(queue);
      return found.length ? found : undefined;
    });
    assert.ok(Date.now() - began > 900, "it came too early");
    assert.equal(received.dequeueCount, 1);
    for (const visibilityTimeout of [-1, 604801]) {
      const options = { visibilityTimeout, messageTimeToLive: -1 };
      await refused(400, "OutOfRangeQueryParameterValue", queue.sendMessage("x", options));
    }
    const outlasting = { visibilityTimeout: 10, messageTimeToLive: 10 };
    await refused(400, "InvalidQueryParameterValue", queue.sendMessage("x", outlasting));
  });

  test("receive from one to thirty-two, oldest first", async () => {
    const queue = await door.fresh();
    for (let number = 0; number < 35; number += 1) {
      await queue.sendMessage(String(number));
    }
    assert.deepEqual(texts(await receive(queue)), ["0"]);
    const batch = await receive(queue, { numberOfMessages: 32, visibilityTimeout: 600 });
    assert.equal(batch.length, 32);
    assert.equal(new Set(batch.map((item) => item.popReceipt)).size, 32);
    assert.equal((await receive(queue, { numberOfMessages: 32 })).length, 2);
    assert.deepEqual(await receive(queue), []);
    for (const numberOfMessages of [0, 33]) {
      await refused(
        400,
        "OutOfRangeQueryParameterValue",
        queue.receiveMessages({ numberOfMessages }),
      );
      await refused(
        400,
        "OutOfRangeQueryParameterValue",
        queue.peekMessages({ numberOfMessages }),
      );
    }
    for (const visibilityTimeout of [0, 604801]) {
      await refused(
        400,
        "OutOfRangeQueryParameterValue",
        queue.receiveMessages({ visibilityTimeout }),
      );
    }
  });

  test("an empty queue gives nothing", async () => {
    const queue = await door.fresh();
    assert.deepEqual(await receive(queue), []);
    assert.deepEqual(await peek(queue), []);
    await queue.clearMessages();
  });

  test("peek changes nothing", async () => {
    const queue = await door.fresh();
    const sent = await queue.sendMessage("text");
    for (let turn = 0; turn < 2; turn += 1) {
      const [peeked] = await peek(queue, 1);
      assert.equal(peeked.messageId, sent.messageId);
      assert.equal(peeked.dequeueCount, 0);
      assert.equal(peeked.popReceipt, undefined);
    }
    assert.equal((await receive(queue))[0].dequeueCount, 1);
    assert.deepEqual(await peek(queue), []);
  });

  test("a message comes back, and its old receipt is stale", async () => {
    const queue = await door.fresh();
    await queue.sendMessage("text");
    const [first] = await receive(queue, { visibilityTimeout: 1 });
    const [second] = await eventually("it is visible", async () => {
      const found = await receive(queue);
      return found.length ? found : undefined;
    });
    assert.equal(second.dequeueCount, 2);
    const stale = [first.messageId, first.popReceipt];
    await refused(404, "MessageNotFound", queue.deleteMessage(...stale));
    await refused(404, "MessageNotFound", queue.updateMessage(...stale, "stolen", 0));
    await queue.deleteMessage(second.messageId, second.popReceipt);
    await refused(404, "MessageNotFound", queue.deleteMessage(second.messageId, second.popReceipt));
  });

  test("update with and without a text", async () => {
    const queue = await door.fresh();
    const sent = await queue.sendMessage("old");
    const updated = await queue.updateMessage(sent.messageId, sent.popReceipt, "new", 60);
    assert.ok(updated.popReceipt && updated.popReceipt !== sent.popReceipt);
    assert.ok(Math.abs(updated.nextVisibleOn - Date.now() - 60_000) < 20_000);
    await refused(
      404,
      "MessageNotFound",
      queue.updateMessage(sent.messageId, sent.popReceipt, "x", 0),
    );
    const kept = await queue.updateMessage(sent.messageId, updated.popReceipt, undefined, 0);
    assert.deepEqual(texts(await peek(queue)), ["new"]);
    await queue.updateMessage(sent.messageId, kept.popReceipt, "", 0);
    assert.deepEqual(texts(await peek(queue)), [""]);
    const [received] = await receive(queue);
    assert.deepEqual(received.insertedOn, sent.insertedOn);
    assert.deepEqual(received.expiresOn, sent.expiresOn);
    for (const seconds of [-1, 604801]) {
      await refused(
        400,
        "OutOfRangeQueryParameterValue",
        queue.updateMessage(received.messageId, received.popReceipt, "x", seconds),
      );
    }
  });

  test("receipts and ids that are none", async () => {
    const queue = await door.fresh();
    const { messageId, popReceipt } = await queue.sendMessage("text");
    const id = "00000000-0000-0000-0000-000000000000";
    await refused(400, "InvalidQueryParameterValue", queue.deleteMessage(messageId, "invalid"));
    await refused(404, "MessageNotFound", queue.deleteMessage(messageId, RECEIPT));
    await refused(404, "MessageNotFound", queue.deleteMessage(id, popReceipt));
    await refused(404, "MessageNotFound", queue.deleteMessage("not-a-guid", popReceipt));
    await queue.deleteMessage(messageId, popReceipt);
  });

  test("clear takes hidden messages too", async () => {
    const queue = await door.fresh();
    await queue.sendMessage("held");
    const [held] = await receive(queue);
    await queue.sendMessage("later", { visibilityTimeout: 600 });
    await queue.clearMessages();
    assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
    await refused(404, "MessageNotFound", queue.deleteMessage(held.messageId, held.popReceipt));
  });

  test("every operation on a queue that is not there", async () => {
    const queue = door.absent();
    const id = "00000000-0000-0000-0000-000000000000";
    for (const operation of [
      () => queue.sendMessage("x"),
      () => queue.receiveMessages(),
      () => queue.peekMessages(),
      () => queue.clearMessages(),
      () => queue.updateMessage(id, RECEIPT, "x", 0),
      () => queue.deleteMessage(id, RECEIPT),
      () => queue.setMetadata({ a: "b" }),
      () => queue.getProperties(),
    ]) {
      await refused(404, "QueueNotFound", operation());
    }
  });
});
