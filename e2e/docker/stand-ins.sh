#!/bin/sh
# For `make test-docker` where no image registry can be reached: stand-ins for the base images, made of Debian packages, with the
# names of the real images. Needs root, debootstrap and a Docker engine. The label tells the test (and you) what is no real image;
# `docker image rm` with the name removes a stand-in.
#   sudo sh e2e/docker/stand-ins.sh
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

import() { # folder, image, what it is, then more options
    folder=$1 image=$2 what=$3
    shift 3
    mkdir -p "$folder/etc/ssl/certs"
    cp /etc/ssl/certs/ca-certificates.crt "$folder/etc/ssl/certs/" # what this machine trusts: its package index may be a mirror
    tar -C "$folder" -c --exclude='./proc/*' --exclude='./sys/*' --exclude='./var/cache/apt/archives/*.deb' . |
        docker import --change "LABEL fernlabour.stand-in=\"$image is $what\"" "$@" - "$image"
}

python=$(sed -n 's/^FROM \(python:[^ @]*\).*/\1/p' services/labour/Dockerfile | head -n 1)
debootstrap --variant=minbase --include=python3-venv,python3-pip trixie "$work/python"
ln -s python3 "$work/python/usr/bin/python"
import "$work/python" "$python" "Debian's $(chroot "$work/python" python3 --version)" --change 'CMD ["python"]'

# PostgreSQL 18 is in Debian's unstable release only. The user has the id that it has in the real image.
postgres=$(sed -n 's/^ *image: \(postgres:[^ @]*\).*/\1/p' docker-compose.yml | head -n 1)
debootstrap --variant=minbase sid "$work/postgres"
chroot "$work/postgres" useradd --system --uid 999 --home-dir /var/lib/postgresql --shell /bin/sh postgres
printf '#!/bin/sh\nexit 101\n' >"$work/postgres/usr/sbin/policy-rc.d" # nothing is started by its installation
chmod +x "$work/postgres/usr/sbin/policy-rc.d"
mkdir "$work/postgres/etc/postgresql-common"
echo "create_main_cluster = false" >"$work/postgres/etc/postgresql-common/createcluster.conf"
chroot "$work/postgres" apt-get --option Acquire::Check-Valid-Until=false update # a mirror may be some days behind
chroot "$work/postgres" env DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends \
    --option Dpkg::Options::=--force-confold postgresql-18
cp e2e/docker/stand-in-postgres.sh "$work/postgres/usr/local/bin/entrypoint.sh"
import "$work/postgres" "$postgres" "Debian's $(chroot "$work/postgres" /usr/lib/postgresql/18/bin/postgres --version)" \
    --change 'ENV PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/postgresql/18/bin' \
    --change 'ENV PGDATA=/var/lib/postgresql/18/docker' --change 'VOLUME /var/lib/postgresql' --change 'STOPSIGNAL SIGINT' \
    --change 'ENTRYPOINT ["sh", "/usr/local/bin/entrypoint.sh"]' --change 'CMD ["postgres"]'
