// Messages and sessions: sent, received, settled.
"use strict";

const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { ServiceBusClient } = require("@azure/service-bus");
const { start } = require("./server.js");

const names = ["send", "batch", "large", "abandon", "letters", "delete", "defer", "schedule"];
const queues = Object.fromEntries(names.concat("renew", "drain", "lost", "pump").map((name) => [name, { LockDuration: "PT5S" }]));
queues.sessions = { RequiresSession: true };

let server;
let client;

before(async () => {
  server = await start(queues);
  client = new ServiceBusClient(server.connectionString, { retryOptions: { maxRetries: 0 } });
});

after(async () => {
  await client.close();
  await server.stop();
});

async function put(queue, ...bodies) {
  const sender = client.createSender(queue);
  for (const body of bodies) await sender.sendMessages({ body });
  await sender.close();
}

async function take(receiver, count = 1) {
  const messages = [];
  while (messages.length < count) {
    const found = await receiver.receiveMessages(count - messages.length, { maxWaitTimeInMs: 5000 });
    assert.ok(found.length > 0, `${messages.length} of ${count} messages`);
    messages.push(...found);
  }
  return messages;
}

async function isEmpty(receiver) {
  return (await receiver.receiveMessages(1, { maxWaitTimeInMs: 500 })).length === 0;
}

test("send, receive, complete", async () => {
  await client.createSender("send").sendMessages({ body: { a: [1] }, applicationProperties: { n: 1, t: "x" } });
  const receiver = client.createReceiver("send");
  const [message] = await take(receiver);
  assert.deepEqual(message.body, { a: [1] });
  assert.deepEqual(message.applicationProperties, { n: 1, t: "x" });
  assert.equal(message.deliveryCount, 0);
  assert.ok(message.messageId);
  assert.ok(message.lockedUntilUtc > new Date());
  await receiver.completeMessage(message);
  assert.ok(await isEmpty(receiver));
});

test("a batch is taken apart", async () => {
  const sender = client.createSender("batch");
  const batch = await sender.createMessageBatch();
  for (let i = 0; i < 20; i++) assert.ok(batch.tryAddMessage({ body: i }));
  await sender.sendMessages(batch);
  const receiver = client.createReceiver("batch", { receiveMode: "receiveAndDelete" });
  const messages = await take(receiver, 20);
  assert.deepEqual(messages.map((message) => message.body), [...Array(20).keys()]);
});

test("a large message", async () => {
  const body = Buffer.alloc(900_000, 7);
  await put("large", body);
  const receiver = client.createReceiver("large");
  const [message] = await take(receiver);
  assert.ok(body.equals(message.body));
  await receiver.completeMessage(message);
});

test("abandon counts, with changed properties", async () => {
  await put("abandon", "x");
  const receiver = client.createReceiver("abandon");
  const [message] = await take(receiver);
  await receiver.abandonMessage(message, { tried: "once" });
  const [again] = await take(receiver);
  assert.equal(again.deliveryCount, 1);
  assert.equal(again.applicationProperties.tried, "once");
  await receiver.completeMessage(again);
});

test("dead letters", async () => {
  await put("letters", "x");
  const receiver = client.createReceiver("letters");
  const [message] = await take(receiver);
  const why = { deadLetterReason: "no good", deadLetterErrorDescription: "at all" };
  await receiver.deadLetterMessage(message, why);
  const letters = client.createReceiver("letters", { subQueueType: "deadLetter" });
  const [letter] = await take(letters);
  assert.equal(letter.deadLetterReason, "no good");
  assert.equal(letter.deadLetterErrorDescription, "at all");
  await letters.completeMessage(letter);
});

test("a lost lock", async () => {
  await put("lost", "x");
  const receiver = client.createReceiver("lost", { maxAutoLockRenewalDurationInMs: 0 });
  const [message] = await take(receiver);
  await new Promise((resolve) => setTimeout(resolve, 5500));
  await assert.rejects(receiver.completeMessage(message), { code: "MessageLockLost" });
  const [again] = await take(receiver);
  assert.equal(again.deliveryCount, 1);
  await receiver.completeMessage(again);
});

test("drains with nothing, something and all", async () => {
  const receiver = client.createReceiver("drain", { receiveMode: "receiveAndDelete" });
  for (let i = 0; i < 10; i++) {
    assert.equal((await receiver.receiveMessages(5, { maxWaitTimeInMs: 50 })).length, 0);
    await put("drain", "a", "b");
    assert.equal((await take(receiver, 2)).length, 2);
  }
});

test("defer, peek, receive by number", async () => {
  await put("defer", "x");
  const receiver = client.createReceiver("defer");
  const [message] = await take(receiver);
  await receiver.deferMessage(message);
  const [peeked] = await receiver.peekMessages(5);
  assert.equal(peeked.state, "deferred");
  const [again] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  await receiver.completeMessage(again);
  assert.equal((await receiver.peekMessages(5, { fromSequenceNumber: message.sequenceNumber })).length, 0);
});

test("schedule and cancel", async () => {
  const sender = client.createSender("schedule");
  const later = new Date(Date.now() + 3_600_000);
  const numbers = await sender.scheduleMessages([{ body: "never" }, { body: "ever" }], later);
  assert.equal(numbers.length, 2);
  await sender.cancelScheduledMessages(numbers);
  await assert.rejects(sender.cancelScheduledMessages(numbers), { code: "MessageNotFound" });
  await sender.scheduleMessages({ body: "soon" }, new Date(Date.now() + 1_000));
  const [message] = await take(client.createReceiver("schedule", { receiveMode: "receiveAndDelete" }));
  assert.equal(message.body, "soon");
});

test("renew", async () => {
  await put("renew", "x");
  const receiver = client.createReceiver("renew");
  const [message] = await take(receiver);
  await new Promise((resolve) => setTimeout(resolve, 1_000));
  const until = message.lockedUntilUtc;
  assert.ok((await receiver.renewMessageLock(message)) > until);
  await receiver.completeMessage(message);
});

test("subscribe", async () => {
  const receiver = client.createReceiver("pump");
  const seen = [];
  const all = new Promise((resolve, reject) => {
    receiver.subscribe({
      async processMessage(message) {
        if (seen.push(message.body) === 50) resolve();
      },
      async processError({ error }) {
        reject(error);
      },
    });
  });
  await put("pump", ...Array(50).keys());
  await all;
  await receiver.close();
  assert.deepEqual(seen, [...Array(50).keys()]);
});

test("an absent queue", async () => {
  const receiver = client.createReceiver("absent");
  await assert.rejects(receiver.receiveMessages(1), { code: "MessagingEntityNotFound" });
});

test("sessions", async () => {
  const sender = client.createSender("sessions");
  await sender.sendMessages([
    { body: 1, sessionId: "a" },
    { body: 2, sessionId: "a" },
  ]);
  const session = await client.acceptNextSession("sessions");
  assert.equal(session.sessionId, "a");
  await assert.rejects(client.acceptSession("sessions", "a"), { code: "SessionCannotBeLocked" });
  const until = session.sessionLockedUntilUtc;
  assert.ok(until > new Date());
  await session.setSessionState("so far");
  assert.equal(await session.getSessionState(), "so far");
  assert.ok((await session.renewSessionLock()) >= until);
  const messages = await take(session, 2);
  assert.deepEqual(messages.map((message) => message.body), [1, 2]);
  for (const message of messages) await session.completeMessage(message);
  await session.close();
  const again = await client.acceptSession("sessions", "a");
  await again.close();
});
