# The service's user owns the store and reads the configuration.
if ! getent passwd verifyd >/dev/null; then
  useradd --system --user-group --home-dir /var/lib/verifyd --no-create-home \
    --shell /usr/sbin/nologin --comment "verifyd" verifyd
fi
