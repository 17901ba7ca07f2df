-- Run by PostgreSQL's image on a new volume, while the server listens to no network: the superuser can log in without a password
-- inside the container (`docker compose exec postgres psql -U postgres`), and from nowhere else.
ALTER ROLE postgres PASSWORD NULL;
