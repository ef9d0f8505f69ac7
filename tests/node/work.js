// A worker for the delayed-message plugin: after a failure it publishes the message again, with a delay, and all that it
// had. It fails twice, and prints the header x-delay of what came back.
'use strict';

const amqplib = require('amqplib');

const PATIENCE = 60_000; // milliseconds

async function main({ url, exchange, queue, delay }) {
  const connection = await amqplib.connect(url);
  const channel = await connection.createConfirmChannel();
  await new Promise((resolve) => {
    const timer = setTimeout(resolve, PATIENCE);
    channel.consume(queue, async (message) => {
      const { headers } = message.properties;
      const tries = headers.tries || 0;
      if (tries > 0) console.log(JSON.stringify(headers['x-delay']));
      if (tries < 2) {
        const again = { ...message.properties, headers: { ...headers, tries: tries + 1, 'x-delay': delay } };
        channel.publish(exchange, message.fields.routingKey, message.content, { ...again, mandatory: true });
        await channel.waitForConfirms();
      }
      channel.ack(message);
      if (tries === 2) {
        clearTimeout(timer);
        resolve();
      }
    });
  });
  await channel.close();
  await connection.close();
}

main(JSON.parse(process.argv[2]));
