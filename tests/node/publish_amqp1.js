// Publishes messages by AMQP 1.0, each with a delay as an annotation, and waits until the broker has accepted them.
'use strict';

const rhea = require('rhea');

function main({ host, port, username, password, vhost, address, messages }) {
  const connection = rhea.create_container().connect({
    host, port, username, password, hostname: `vhost:${vhost}`, reconnect: false,
  });
  const sender = connection.open_sender(address);
  let accepted = 0;
  sender.once('sendable', () => {
    for (const { body, delay, id } of messages) {
      sender.send({
        message_id: id,
        durable: true,
        body: rhea.message.data_section(Buffer.from(body)),
        message_annotations: { 'x-opt-delivery-delay': rhea.types.wrap_ulong(delay) },
      });
    }
  });
  sender.on('accepted', () => {
    accepted += 1;
    if (accepted === messages.length) connection.close();
  });
  for (const trouble of ['rejected', 'released', 'modified']) {
    sender.on(trouble, () => { throw new Error(trouble); });
  }
  for (const trouble of ['sender_error', 'connection_error', 'disconnected']) {
    connection.on(trouble, () => { throw new Error(`${trouble}: ${connection.error || sender.error}`); });
  }
}

main(JSON.parse(process.argv[2]));
