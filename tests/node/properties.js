// AMQP's names of properties, and amqplib's.
'use strict';

const NAMES = {
  content_type: 'contentType',
  content_encoding: 'contentEncoding',
  delivery_mode: 'deliveryMode',
  priority: 'priority',
  correlation_id: 'correlationId',
  reply_to: 'replyTo',
  expiration: 'expiration',
  message_id: 'messageId',
  timestamp: 'timestamp',
  type: 'type',
  user_id: 'userId',
  app_id: 'appId',
};

function toOptions(properties) {
  return Object.fromEntries(Object.entries(properties).map(([name, value]) => [NAMES[name], value]));
}

function toProperties(given) {
  const pairs = Object.entries(NAMES).map(([name, own]) => [name, given[own]]);
  return Object.fromEntries(pairs.filter(([, value]) => value !== undefined));
}

module.exports = { toOptions, toProperties };
