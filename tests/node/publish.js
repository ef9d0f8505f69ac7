// Publishes messages, mandatory, and waits for the confirms. A message that comes back is an error.
'use strict';

const amqplib = require('amqplib');
const { toOptions } = require('./properties');

async function main({ url, exchange, messages }) {
  const connection = await amqplib.connect(url);
  const channel = await connection.createConfirmChannel();
  let returned = 0;
  channel.on('return', () => { returned += 1; });
  for (const { body, key, headers, properties } of messages) {
    channel.publish(exchange, key, Buffer.from(body), { headers, mandatory: true, ...toOptions(properties) });
  }
  await channel.waitForConfirms();
  await connection.close();
  if (returned) throw new Error(`${returned} messages came back`);
}

main(JSON.parse(process.argv[2]));
