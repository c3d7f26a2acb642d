// What the Node clients' tests share: where the server is, comparing, and letting time pass. See clients/README.md for the variables.
'use strict';

const assert = require('node:assert');
const net = require('node:net');

const SERVER = process.env.SERVER;
const SERVERS = process.env.SERVERS.split(' ');
const IS_UNIX = SERVER.startsWith('/');
const EVERY_BYTE = Buffer.concat([Buffer.from(Array.from({ length: 256 }, (_, n) => n)), Buffer.from('\r\nEND\r\n\0')]);
const LARGE = Buffer.alloc(900 * 1024, '0123456789abcdef');
const TOO_LARGE = Buffer.alloc(2 * 1024 * 1024, 'x');

let checks = 0;

function same(got, expected, what) {
  checks++;
  try {
    assert.deepStrictEqual(got, expected);
  } catch {
    const short = (value) => String(JSON.stringify(value)).slice(0, 200);
    console.log(`${what}: expected ${short(expected)} and got ${short(got)}`);
    process.exit(1);
  }
}

async function passSeconds(seconds) {
  if (process.env.CLOCK !== 'debugtime') {
    await new Promise((resolve) => setTimeout(resolve, (seconds + 1) * 1000));
    return;
  }
  const control = IS_UNIX ? net.connect(SERVER) : net.connect(Number(SERVER.split(':')[1]), SERVER.split(':')[0]);
  control.write(`debugtime ${seconds + 1}\r\n`);
  const answer = await new Promise((resolve, reject) => control.once('data', resolve).once('error', reject));
  same(answer.toString(), 'OK\r\n', 'debugtime');
  control.destroy();
}

function run(main) {
  main().then(
    () => {
      console.log(`ok ${checks}`);
      process.exit(0);
    },
    (error) => {
      console.log(error.stack);
      process.exit(1);
    },
  );
}

module.exports = { SERVER, SERVERS, IS_UNIX, EVERY_BYTE, LARGE, TOO_LARGE, same, passSeconds, run };
