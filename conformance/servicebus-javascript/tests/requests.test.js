// Requests to $management: peeks, schedules, deferred messages, locks.
"use strict";

const assert = require("node:assert/strict");
const { bodies, drop, fresh, isEmpty, put, scenarios, sleep, take } = require("../lib/kew.js");

scenarios({
  async "peek shows all states in pages"(client) {
    const queue = fresh();
    const receiver = client.createReceiver(queue);
    assert.deepEqual(await receiver.peekMessages(5), []);
    await put(client, queue, "active", "locked", "deferred");
    const later = new Date(Date.now() + 3_600_000);
    await client.createSender(queue).scheduleMessages({ body: "scheduled" }, later);
    const [first, , third] = await take(receiver, 3);
    await receiver.abandonMessage(first);
    await receiver.deferMessage(third);
    const seen = [];
    for (let page; page?.length !== 0; ) {
      page = await receiver.peekMessages(3);
      seen.push(...page.map((message) => `${message.body} ${message.state} ${message.deliveryCount}`));
    }
    assert.deepEqual(seen, ["active active 1", "locked active 0", "deferred deferred 0", "scheduled scheduled 0"]);
    const bodiless = await receiver.peekMessages(5, { fromSequenceNumber: first.sequenceNumber, omitMessageBody: true });
    assert.deepEqual(bodiless.map((message) => message.body ?? null), [null, null, null, null]);
  },

  async "schedule and cancel"(client) {
    const queue = fresh();
    const sender = client.createSender(queue);
    const receiver = client.createReceiver(queue);
    const later = new Date(Date.now() + 3_600_000);
    const numbers = await sender.scheduleMessages([{ body: "never" }, { body: "ever" }], later);
    assert.equal(numbers.length, 2);
    await sender.cancelScheduledMessages(numbers);
    await assert.rejects(sender.cancelScheduledMessages(numbers), { code: "MessageNotFound" });
    await sender.sendMessages({ body: "past", scheduledEnqueueTimeUtc: new Date(Date.now() - 3_600_000) });
    assert.equal((await drop(receiver)).body, "past");
    const soon = Date.now() + 2_000;
    await sender.scheduleMessages({ body: "soon" }, new Date(soon));
    await sender.sendMessages({ body: "later", scheduledEnqueueTimeUtc: new Date(soon + 1_000) });
    assert.equal((await drop(receiver)).body, "soon");
    assert.ok(Date.now() >= soon - 50);
    assert.equal((await drop(receiver)).body, "later");
  },

  async "deferred messages are settled in every way"(client) {
    const queue = fresh();
    await put(client, queue, "complete", "abandon", "defer", "letter");
    const receiver = client.createReceiver(queue);
    const messages = await take(receiver, 4);
    const numbers = messages.map((message) => message.sequenceNumber);
    for (const message of messages) await receiver.deferMessage(message, { deferred: "once" });
    assert.ok(await isEmpty(receiver));
    const [complete, abandon, defer, letter] = await receiver.receiveDeferredMessages(numbers);
    assert.deepEqual(bodies([complete, abandon, defer, letter]), ["complete", "abandon", "defer", "letter"]);
    assert.equal(complete.applicationProperties.deferred, "once");
    await receiver.renewMessageLock(complete);
    await receiver.completeMessage(complete);
    await receiver.abandonMessage(abandon, { abandoned: true });
    await receiver.deferMessage(defer);
    await receiver.deadLetterMessage(letter, { deadLetterReason: "why" });
    // An abandoned message is still deferred.
    assert.ok(await isEmpty(receiver));
    const [again] = await receiver.receiveDeferredMessages(numbers[1]);
    assert.equal(again.deliveryCount, 1);
    assert.equal(again.applicationProperties.abandoned, true);
    await receiver.completeMessage(again);
    await assert.rejects(receiver.receiveDeferredMessages(numbers[0]), { code: "MessageNotFound" });
    assert.equal((await drop(client.createReceiver(queue, { subQueueType: "deadLetter" }))).deadLetterReason, "why");
    const deleting = client.createReceiver(queue, { receiveMode: "receiveAndDelete" });
    assert.deepEqual(bodies(await deleting.receiveDeferredMessages(numbers[2])), ["defer"]);
    assert.equal((await deleting.peekMessages(5)).length, 0);
  },

  async "a renewed lock holds"(client) {
    const queue = fresh("renewed");
    await put(client, queue, "x");
    const receiver = client.createReceiver(queue, { maxAutoLockRenewalDurationInMs: 0 });
    const [message] = await take(receiver);
    const first = message.lockedUntilUtc.getTime();
    while (Date.now() < first + 1_000) {
      const until = message.lockedUntilUtc;
      await sleep(1_000);
      assert.ok((await receiver.renewMessageLock(message)) > until);
    }
    await receiver.completeMessage(message);
    assert.ok(await isEmpty(receiver));
  },
});
