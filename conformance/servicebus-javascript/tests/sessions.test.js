// Sessions: accepted, locked, with state.
"use strict";

const assert = require("node:assert/strict");
const { bodies, connect, connectionString, drop, fresh, put, scenarios, sleep, take } = require("../lib/kew.js");

const inSession = (sessionId, body) => ({ sessionId, body });
const byHand = { maxAutoLockRenewalDurationInMs: 0 };

scenarios({
  async "are accepted in order and by one"(client) {
    const queue = fresh("session");
    await put(client, queue, inSession("b", 1), inSession("a", 2), inSession("b", 3));
    const first = await client.acceptNextSession(queue);
    assert.equal(first.sessionId, "b");
    const left = first.sessionLockedUntilUtc - new Date();
    assert.ok(left > 30_000 && left < 90_000, left);
    await assert.rejects(client.acceptSession(queue, "b"), { code: "SessionCannotBeLocked" });
    assert.deepEqual(bodies(await first.peekMessages(10)), [1, 3]);
    const messages = await take(first, 2);
    assert.deepEqual(bodies(messages), [1, 3]);
    await first.deferMessage(messages[0]);
    const [deferred] = await first.receiveDeferredMessages(messages[0].sequenceNumber);
    await first.completeMessage(deferred);
    const second = await client.acceptNextSession(queue);
    assert.equal(second.sessionId, "a");
    assert.equal((await drop(second)).body, 2);
    // A released session is available at once, and the delivery of its message was not counted.
    await first.close();
    const again = await client.acceptSession(queue, "b");
    const message = await drop(again);
    assert.deepEqual([message.body, message.deliveryCount], [3, 0]);
  },

  async "keep their state"(client) {
    const queue = fresh("session");
    const session = await client.acceptSession(queue, "s");
    assert.equal(await session.getSessionState(), null);
    await session.setSessionState("so far");
    const until = session.sessionLockedUntilUtc;
    await sleep(1_000);
    assert.ok((await session.renewSessionLock()) > until);
    await session.close();
    const again = await client.acceptSession(queue, "s");
    assert.equal(await again.getSessionState(), "so far");
    await again.setSessionState(null);
    assert.equal(await again.getSessionState(), null);
  },

  async "none in time is an error"(client, door) {
    const queue = fresh("session");
    const impatient = connect(door, connectionString(door), 5_000);
    try {
      await assert.rejects(impatient.acceptNextSession(queue), { code: "ServiceTimeout" });
      // The connection still works.
      await put(client, queue, inSession("s", "x"));
      assert.equal((await impatient.acceptNextSession(queue)).sessionId, "s");
    } finally {
      await impatient.close();
    }
  },

  async "one that comes late"(client, door) {
    const queue = fresh("session");
    const other = connect(door);
    const waiting = other.acceptNextSession(queue);
    await sleep(500);
    await put(client, queue, inSession("late", "x"));
    assert.equal((await waiting).sessionId, "late");
    await other.close();
  },

  async "locks run out"(client, door) {
    const queue = fresh("brief-session");
    await put(client, queue, inSession("s", "x"));
    const session = await client.acceptSession(queue, "s", byHand);
    const [message] = await take(session);
    const other = connect(door);
    try {
      const next = await other.acceptNextSession(queue, byHand);
      const [again] = await take(next);
      assert.equal(again.deliveryCount, 1);
      // A settlement during the detach of its link waits for a minute: the SDK forgets to end it.
      while (!session.isClosed) await sleep(20);
      await assert.rejects(session.completeMessage(message), { code: "SessionLockLost" });
      await next.completeMessage(again);
    } finally {
      await other.close();
    }
  },

  async "what does not fit is refused"(client) {
    const queue = fresh("session");
    const refused = /InvalidOperationError/;
    await assert.rejects(client.createReceiver(queue).receiveMessages(1), refused);
    await assert.rejects(put(client, queue, "x"), refused);
    // The SDK reads the granted session, which is missing, before it reads the error.
    await assert.rejects(client.acceptSession(fresh(), "s"), /may be locked by another receiver|InvalidOperationError/);
    await assert.rejects(client.acceptSession("absent", "s"), /may be locked by another receiver|could not be found/);
  },
});
