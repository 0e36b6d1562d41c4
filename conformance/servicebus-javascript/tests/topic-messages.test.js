// Messages of topics: scheduled, forwarded, expired, sent twice.
"use strict";

const assert = require("node:assert/strict");
const { bodies, deleting, drop, isEmpty, put, sleep, take } = require("../lib/kew.js");
const { admin, changeSubscription, changeTopic, peeked, scenarios, subscribe } = require("../lib/topics.js");

const letters = { subQueueType: "deadLetter" };

// Takes so many messages of a subscription for good.
function copies(client, topic, name, count) {
  return take(client.createReceiver(topic, name, deleting()), count);
}

const colored = (color, more) => ({ body: color, applicationProperties: { color }, ...more });
const byColor = (color) => ({ applicationProperties: { color } });
const numbers = (messages) => messages.map((it) => it.enqueuedSequenceNumber);

scenarios({
  async "scheduled messages use the rules of their time"(client, topic) {
    await admin.createSubscription(topic, "all");
    await subscribe(topic, "some", byColor("red"));
    const sender = client.createSender(topic);
    const hour = new Date(Date.now() + 3_600_000);
    const cancelled = await sender.scheduleMessages([{ body: "never" }, { body: "ever" }], hour);
    assert.deepEqual(cancelled.map(Number), [1, 2]);
    const waiting = async () => (await admin.getTopicRuntimeProperties(topic)).scheduledMessageCount;
    assert.equal(await waiting(), 2);
    await sender.cancelScheduledMessages(cancelled);
    await assert.rejects(sender.cancelScheduledMessages(cancelled), { code: "MessageNotFound" });
    assert.equal(await waiting(), 0);
    // What is due already does not wait.
    await put(client, topic, { body: "past", scheduledEnqueueTimeUtc: new Date(Date.now() - 3_600_000) });
    assert.deepEqual(bodies(await copies(client, topic, "all", 1)), ["past"]);
    const due = new Date(Date.now() + 20_000);
    await sender.scheduleMessages(colored("red"), due);
    await sender.sendMessages(colored("blue", { scheduledEnqueueTimeUtc: due }));
    // A rule that changes meanwhile counts, and a subscription that is made meanwhile.
    await admin.updateRule(topic, "some", { ...(await admin.getRule(topic, "some", "r")), filter: byColor("blue") });
    await admin.createSubscription(topic, "late");
    // They wait in the topic.
    const shown = await client.createReceiver(topic).peekMessages(10);
    assert.deepEqual(shown.map((it) => [it.body, it.state]), [["red", "scheduled"], ["blue", "scheduled"]]);
    assert.equal(await waiting(), 2);
    const received = await copies(client, topic, "all", 2);
    assert.ok(Date.now() > due - 50);
    assert.deepEqual(bodies(received), ["red", "blue"]);
    // Four numbers of the topic were for schedules, one was for the past, and a message that becomes active gets a new one.
    assert.deepEqual(numbers(received), [6, 7]);
    assert.deepEqual(received.map((it) => Number(it.sequenceNumber)), [2, 3]);
    assert.deepEqual(bodies(await copies(client, topic, "late", 2)), ["red", "blue"]);
    assert.deepEqual(bodies(await copies(client, topic, "some", 1)), ["blue"]);
    assert.deepEqual(await peeked(client, topic, "some"), []);
    assert.equal(await waiting(), 0);
  },

  async "the shortest life counts"(client, topic) {
    await changeTopic(topic, { defaultMessageTimeToLive: "PT1H" });
    for (const [name, defaultMessageTimeToLive] of [["short", "PT30M"], ["long", "PT2H"]]) {
      await admin.createSubscription(topic, name, { defaultMessageTimeToLive });
    }
    await admin.createSubscription(topic, "kept", { deadLetteringOnMessageExpiration: true });
    await put(client, topic, "own", { body: "minutes", timeToLive: 600_000 }, { body: "second", timeToLive: 1_000 });
    const lives = async (name) => {
      const messages = (await peeked(client, topic, name)).filter((it) => it.body !== "second");
      return messages.map((it) => [it.body, (it.expiresAtUtc - it.enqueuedTimeUtc) / 60_000]);
    };
    assert.deepEqual(await lives("short"), [["own", 30], ["minutes", 10]]);
    assert.deepEqual(await lives("long"), [["own", 60], ["minutes", 10]]);
    const letter = await drop(client.createReceiver(topic, "kept", letters));
    assert.deepEqual([letter.body, letter.deadLetterReason], ["second", "TTLExpiredException"]);
    // The others did not ask for dead letters.
    for (const name of ["short", "long"]) {
      let counts;
      do {
        await sleep(100);
        counts = await admin.getSubscriptionRuntimeProperties(topic, name);
      } while (counts.activeMessageCount > 2);
      assert.deepEqual([counts.activeMessageCount, counts.deadLetterMessageCount], [2, 0]);
    }
  },

  async "a topic drops duplicates, also of what is forwarded to it"(client, topic) {
    const unique = `${topic}-unique`;
    await admin.createTopic(unique, {
      requiresDuplicateDetection: true, duplicateDetectionHistoryTimeWindow: "PT1M",
    });
    for (const name of ["one", "two"]) await admin.createSubscription(unique, name);
    await put(client, unique, { body: 1, messageId: "a" }, { body: 2, messageId: "a" }, { body: 3, messageId: "b" });
    const queue = `${topic}-in`;
    await admin.createQueue(queue, { forwardTo: unique });
    await put(client, queue, { body: 4, messageId: "b" }, { body: 5, messageId: "c" });
    for (const name of ["one", "two"]) {
      const received = await copies(client, unique, name, 3);
      assert.deepEqual(received.map((it) => [it.body, Number(it.sequenceNumber)]), [[1, 1], [3, 2], [5, 3]]);
      // A duplicate takes no number, and what was forwarded keeps that of its queue.
      assert.deepEqual(numbers(received), [1, 2, 2]);
      assert.ok(await isEmpty(client.createReceiver(unique, name, deleting())));
    }
    // Another topic has its own.
    await admin.createSubscription(topic, "s");
    await put(client, topic, { body: 1, messageId: "a" }, { body: 2, messageId: "a" });
    assert.deepEqual(bodies(await peeked(client, topic, "s")), [1, 2]);
    await admin.deleteQueue(queue);
    await admin.deleteTopic(unique);
  },

  // A queue to a topic, whose subscriptions forward to a queue and to a topic, whose dead letters go to a third topic.
  async "queues and subscriptions forward to topics and queues"(client, topic) {
    const [into, out, end, dead] = ["in", "out", "end", "dead"].map((it) => `${topic}-${it}`);
    await admin.createQueue(into, { forwardTo: topic });
    await admin.createQueue(out);
    for (const name of [end, dead]) await admin.createTopic(name);
    await admin.createSubscription(topic, "all");
    await admin.createSubscription(topic, "to-queue", { forwardTo: out });
    await admin.createSubscription(topic, "to-topic", {
      forwardTo: end,
      defaultRuleOptions: { name: "r", filter: byColor("red"), action: { sqlExpression: "SET seen = 1" } },
    });
    await admin.createSubscription(end, "last", { forwardDeadLetteredMessagesTo: dead });
    await admin.createSubscription(dead, "letters");
    await put(client, into, "first", colored("red"), colored("blue"));
    const all = ["first", "red", "blue"];
    const received = await copies(client, topic, "all", 3);
    assert.deepEqual([bodies(received), numbers(received)], [all, [1, 2, 3]]);
    assert.deepEqual(bodies(await take(client.createReceiver(out, deleting()), 3)), all);
    const last = client.createReceiver(end, "last");
    const [red] = await take(last);
    assert.deepEqual(red.applicationProperties, { color: "red", seen: 1, RuleName: "r" });
    assert.deepEqual([Number(red.sequenceNumber), red.enqueuedSequenceNumber], [1, 2]);
    await last.deadLetterMessage(red, { deadLetterReason: "why" });
    const [letter] = await copies(client, dead, "letters", 1);
    assert.deepEqual([letter.body, letter.deadLetterReason], ["red", "why"]);
    assert.equal(letter.deadLetterSource.toLowerCase(), `${end}/subscriptions/last`);
    assert.ok(await isEmpty(last));
    // What forwards is not received from.
    await assert.rejects(client.createReceiver(topic, "to-topic").receiveMessages(1), /InvalidOperationError/);
    for (const name of [into, out]) await admin.deleteQueue(name);
    for (const name of [end, dead]) await admin.deleteTopic(name);
  },

  async "a destination that takes nothing makes dead letters at the source"(client, topic) {
    for (const name of ["disabled", "gone"]) {
      await admin.createTopic(`${topic}-${name}`);
      await admin.createSubscription(topic, name, { forwardTo: `${topic}-${name}` });
    }
    await assert.rejects(admin.createSubscription(topic, "s", { forwardTo: `${topic}-missing` }), { statusCode: 400 });
    await changeTopic(`${topic}-disabled`, { status: "SendDisabled" });
    await admin.deleteTopic(`${topic}-gone`);
    await put(client, topic, "x");
    for (const name of ["disabled", "gone"]) {
      const letter = await drop(client.createReceiver(topic, name, letters));
      assert.deepEqual([letter.body, letter.deadLetterReason], ["x", "ForwardingDestinationUnavailable"]);
    }
    // A subscription that forwards no more keeps what it gets.
    await changeSubscription(topic, "gone", { forwardTo: "" });
    await put(client, topic, "y");
    assert.equal((await drop(client.createReceiver(topic, "gone"))).body, "y");
    await admin.deleteTopic(`${topic}-disabled`);
  },

  async "four hops through topics"(client, topic) {
    const back = `${topic}-back`;
    await admin.createTopic(back);
    await admin.createSubscription(topic, "all");
    await admin.createSubscription(back, "all");
    await admin.createSubscription(topic, "there", { forwardTo: back });
    await admin.createSubscription(back, "again", { forwardTo: topic });
    await put(client, topic, "x");
    // It was here, there, here, there and here.
    assert.equal((await copies(client, topic, "all", 3)).length, 3);
    assert.equal((await copies(client, back, "all", 2)).length, 2);
    const letter = await drop(client.createReceiver(topic, "there", letters));
    assert.deepEqual([letter.body, letter.deadLetterReason], ["x", "MaxTransferHopCountExceeded"]);
    assert.ok(await isEmpty(client.createReceiver(topic, "all")));
    await admin.deleteTopic(back);
  },
});
