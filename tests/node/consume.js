// Prints so many messages of a queue, a line each, and acknowledges them. Prints fewer where no more come.
'use strict';

const amqplib = require('amqplib');
const { toProperties } = require('./properties');

const PATIENCE = 60_000; // milliseconds

function line({ content, fields, properties }) {
  return JSON.stringify({
    body: content.toString(),
    key: fields.routingKey,
    exchange: fields.exchange,
    redelivered: fields.redelivered,
    headers: properties.headers,
    properties: toProperties(properties),
    at: Date.now() / 1000,
  });
}

async function main({ url, queue, count }) {
  const connection = await amqplib.connect(url);
  const channel = await connection.createChannel();
  let seen = 0;
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, PATIENCE);
    channel.consume(queue, (message) => {
      if (seen === count) return;
      console.log(line(message));
      channel.ack(message);
      seen += 1;
      if (seen === count) {
        clearTimeout(timer);
        resolve();
      }
    });
  });
  await channel.close();
  await connection.close();
}

main(JSON.parse(process.argv[2]));
