-- Run once by PostgreSQL's image, on a new volume. A login role and a database per service, which only that role may open.
CREATE ROLE labour LOGIN PASSWORD 'labour';
CREATE DATABASE labour OWNER labour;
REVOKE ALL ON DATABASE labour FROM PUBLIC;

CREATE ROLE notification LOGIN PASSWORD 'notification';
CREATE DATABASE notification OWNER notification;
REVOKE ALL ON DATABASE notification FROM PUBLIC;
