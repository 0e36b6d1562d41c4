// A server with queues of a configuration file.
"use strict";

const { spawn } = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const readline = require("node:readline");

async function start(queues) {
  const directory = fs.mkdtempSync(path.join(os.tmpdir(), "kew-"));
  const config = path.join(directory, "Config.json");
  const namespace = {
    Name: "sbemulatorns",
    Queues: Object.entries(queues).map(([Name, Properties]) => ({ Name, Properties })),
  };
  fs.writeFileSync(config, JSON.stringify({ UserConfig: { Namespaces: [namespace] } }));
  const listen = ["--queue-listen", "127.0.0.1:0", "--bus-listen", "127.0.0.1:0"];
  const args = ["serve", "--ephemeral", "--import", config, ...listen];
  const kew = spawn(process.env.KEW_BINARY, args, { stdio: ["ignore", "pipe", "inherit"] });
  const facts = {};
  for await (const line of readline.createInterface({ input: kew.stdout })) {
    const at = line.indexOf("=");
    facts[line.slice(0, at)] = line.slice(at + 1).replace(/^'|'$/g, "");
    if (facts.KEW_READY) break;
  }
  return {
    connectionString: facts.KEW_BUS_CONNECTION_STRING,
    async stop() {
      const ended = new Promise((resolve) => kew.once("exit", resolve));
      kew.kill();
      await ended;
      fs.rmSync(directory, { recursive: true });
    },
  };
}

module.exports = { start };
