# store is the folder that data_dir of the configuration names.
store=$(sed -n "/^data_dir:/{s/[[:space:]]#.*//;s/^data_dir:[[:space:]]*//;s/[[:space:]]*\$//
  s/^[\"']//;s/[\"']\$//;p}" /etc/verifyd/config.yaml 2>/dev/null || :)
store=${store%/}
# left says that a store is not deleted, if it is there. rpm may hide what is not an error.
left() {
  if [ -n "$(ls -A "$1" 2>/dev/null)" ]; then
    echo "verifyd: the store in $1 is left; delete it when nobody needs it" >&2
  fi
}
