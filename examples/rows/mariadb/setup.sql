-- As root: mariadb < setup.sql
CREATE DATABASE shop CHARACTER SET utf8mb4;
CREATE TABLE shop.accounts (
  -- A key is found by its very bytes, hence _bin.
  id      VARCHAR(100) COLLATE utf8mb4_bin NOT NULL PRIMARY KEY,
  name    VARCHAR(200) NOT NULL DEFAULT '',
  email   VARCHAR(200) NOT NULL DEFAULT '',
  flags   INT UNSIGNED NOT NULL DEFAULT 0,
  cas     BIGINT NOT NULL DEFAULT 0,
  expires BIGINT NOT NULL DEFAULT 0
);
INSERT INTO shop.accounts (id, name, email) VALUES ('7', 'Ada', 'ada@example.org');

CREATE USER nuthatch@localhost IDENTIFIED BY 'change me';
GRANT SELECT, INSERT, UPDATE, DELETE ON shop.accounts TO nuthatch@localhost;
-- To read the binary log. MySQL calls the second one REPLICATION CLIENT.
GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO nuthatch@localhost;
