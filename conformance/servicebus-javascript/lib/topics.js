// Topics that no other scenario uses, and the client that administers them, over HTTPS only.
"use strict";

const path = require("node:path");
const { describe, test } = require("node:test");
const { ServiceBusAdministrationClient } = require("@azure/service-bus");
const Long = require("long");
const { connect, connectionString, doors } = require("./kew.js");

const skip = process.env.KEW_BUS_HTTPS ? false : "no port 443";
const admin = new ServiceBusAdministrationClient(connectionString("amqps"), { retryOptions: { maxRetries: 0 } });

// All run at once, through one door after the other, each with a topic of its own.
function scenarios(all, through = doors, prefix = path.basename(process.argv[1], ".test.js")) {
  for (const door of through) {
    describe(door, { skip, concurrency: true }, () => {
      Object.entries(all).forEach(([name, scenario], number) => {
        test(name, async () => {
          const topic = `x-${prefix}-${number}-of-javascript-over-${door}`;
          await admin.createTopic(topic);
          const client = connect(door);
          try {
            await scenario(client, topic);
          } finally {
            await client.close();
          }
          await admin.deleteTopic(topic);
        });
      });
    });
  }
}

// A subscription that has this rule and no other.
function subscribe(topic, name, filter, action) {
  return admin.createSubscription(topic, name, { defaultRuleOptions: { name: "r", filter, action } });
}

// The SDK continues after the last peek at the same subscription, unless it gets a number.
async function peeked(client, topic, name, options) {
  return client.createReceiver(topic, name, options).peekMessages(20, { fromSequenceNumber: Long.ONE });
}

// Changes some settings of a topic or a subscription.
async function changeTopic(topic, settings) {
  return admin.updateTopic({ ...(await admin.getTopic(topic)), ...settings });
}

async function changeSubscription(topic, name, settings) {
  return admin.updateSubscription({ ...(await admin.getSubscription(topic, name)), ...settings });
}

module.exports = { admin, changeSubscription, changeTopic, peeked, scenarios, subscribe };
