-- As the user postgres: createdb shop && psql shop < setup.sql
CREATE TABLE accounts (
  id      text PRIMARY KEY,
  name    text NOT NULL DEFAULT '',
  email   text NOT NULL DEFAULT '',
  flags   bigint NOT NULL DEFAULT 0,
  cas     bigint NOT NULL DEFAULT 0,
  expires bigint NOT NULL DEFAULT 0
);
INSERT INTO accounts (id, name, email) VALUES ('7', 'Ada', 'ada@example.org');

CREATE ROLE nuthatch LOGIN PASSWORD 'change me';
GRANT SELECT, INSERT, UPDATE, DELETE ON accounts TO nuthatch;
