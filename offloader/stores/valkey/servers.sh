#!/usr/bin/env bash
# Runs the tests of the store on real servers: one alone and one that Sentinel watches, each
# without and with TLS, and a cluster of three. It installs Debian's packages where there is no redis-server;
# where they cannot be had it says so and passes.
set -euo pipefail
cd "$(dirname "$0")/../../.."

skip() {
  echo "skipped: $1"
  exit 0
}
command -v python3 >/dev/null || skip "no python3 to find free ports with"
if ! command -v redis-server >/dev/null; then
  root=()
  [ "$(id -u)" = 0 ] || root=(sudo -n)
  { command -v apt-get && "${root[@]}" apt-get update -q && "${root[@]}" env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -q -y --no-install-recommends redis-server; } \
    >/dev/null 2>&1 || skip "no redis-server, and its package cannot be installed"
fi

dir=$(mktemp -d)
servers=()
stop() {
  [ ${#servers[@]} -eq 0 ] || kill "${servers[@]}" 2>/dev/null || true
  wait
  rm -rf "$dir"
}
trap stop EXIT

# port prints a port that is free now, and whose cluster port is free too.
port() {
  python3 -c '
import socket
while True:
    with socket.socket() as a, socket.socket() as b:
        a.bind(("127.0.0.1", 0))
        p = a.getsockname()[1]
        if p > 50000:
            continue
        try:
            b.bind(("127.0.0.1", p + 10000))
        except OSError:
            continue
        print(p)
        break'
}

# listen PORT prints the options of a server that listens there; tls says how.
listen() {
  if [ -n "$tls" ]; then
    echo --port 0 --tls-port "$1" --tls-cert-file "$dir/cert.pem" --tls-key-file "$dir/key.pem" --tls-ca-cert-file "$dir/cert.pem" \
      --tls-auth-clients no --tls-replication yes
  else
    echo --port "$1"
  fi
}

# cli ARGUMENTS... runs redis-cli.
cli() {
  if [ -n "$tls" ]; then
    redis-cli --tls --cacert "$dir/cert.pem" --sni localhost "$@"
  else
    redis-cli "$@"
  fi
}

# start NAME PORT OPTIONS... starts a server and waits until it answers.
start() {
  local name=$1$tls at=$2
  shift 2
  mkdir -p "$dir/$name"
  redis-server "$@" --bind 127.0.0.1 --dir "$dir/$name" --save '' >"$dir/$name/log" 2>&1 &
  servers+=($!)
  for _ in $(seq 100); do
    cli -p "$at" ping >/dev/null 2>&1 && return
    sleep 0.1
  done
  cat "$dir/$name/log"
  return 1
}

# watched starts a server and a Sentinel, and sets single and sentinel to where they listen.
watched() {
  single=$(port)
  # shellcheck disable=SC2046 # several options
  start single "$single" $(listen "$single") --user kv on '>secret' '~*' '&*' +@all --user default on nopass '~*' '&*' +@all
  sentinel=$(port)
  mkdir -p "$dir/sentinel$tls"
  printf 'sentinel monitor main 127.0.0.1 %s 1\n' "$single" >"$dir/sentinel$tls/sentinel.conf"
  # shellcheck disable=SC2046
  redis-server "$dir/sentinel$tls/sentinel.conf" --sentinel $(listen "$sentinel") --bind 127.0.0.1 --dir "$dir/sentinel$tls" >"$dir/sentinel$tls/log" 2>&1 &
  servers+=($!)
  for _ in $(seq 100); do
    cli -p "$sentinel" sentinel get-master-addr-by-name main 2>/dev/null | grep -q "$single" && break
    sleep 0.1
  done
}

tls=
watched
export KVACTOR_VALKEY_SINGLE=valkey://kv:secret@127.0.0.1:$single?ttl=1h
export KVACTOR_VALKEY_SENTINEL=valkey://kv:secret@127.0.0.1:$sentinel?master_set=main

nodes=()
for n in 1 2 3; do
  at=$(port)
  # shellcheck disable=SC2046
  start "node$n" "$at" $(listen "$at") --cluster-enabled yes --cluster-node-timeout 5000
  nodes+=("127.0.0.1:$at")
done
timeout 60 redis-cli --cluster create "${nodes[@]}" --cluster-yes >"$dir/create"
for _ in $(seq 100); do
  redis-cli -p "$at" cluster info | grep -q cluster_state:ok && break
  sleep 0.1
done
export KVACTOR_VALKEY_CLUSTER=valkey://${nodes[0]}?addr=${nodes[1]}\&addr=${nodes[2]}

# The certificate names localhost, and Sentinel names its server by 127.0.0.1.
(cd "$dir" && go run "$(go env GOROOT)/src/crypto/tls/generate_cert.go" --host localhost --ecdsa-curve P256 --ca) 2>/dev/null
tls=tls
watched
export KVACTOR_VALKEY_TLS=valkeys://kv:secret@localhost:$single?ttl=1h\&ca=$dir/cert.pem
export KVACTOR_VALKEY_TLS_SENTINEL=valkeys://kv:secret@localhost:$sentinel?master_set=main\&ca=$dir/cert.pem

redis-server --version
go test -count=1 -run='^TestServer$' -v ./offloader/stores/valkey | tee "$dir/tests" | grep -E '^(ok|FAIL|panic|--- |    --- |    [a-z_]+\.go)' || true
! grep -qE '^(FAIL|--- FAIL)' "$dir/tests" && ! grep -q 'SKIP' "$dir/tests" && grep -q '^ok' "$dir/tests"
