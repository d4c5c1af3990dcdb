package check

import (
	"errors"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf/embedded"
)

// checkDeep reads every record of the embedded store. The service may run meanwhile.
func checkDeep(s *Survey, c config.Store) {
	if c.NATSURL != "" {
		s.Warn("store's records", "run verifyd check --files on each NATS server while that one is stopped",
			"--deep reads the files of an embedded store; this one is on NATS servers")
		return
	}
	addDamage(s, "store's records", "run verifyd recover, or restore a copy into another data directory",
		embedded.Inspect(c.DataDir, c.Sync))
}

// Files reads the records of a NATS server's store.
func (s *Survey) Files(dir string) {
	addDamage(s, "store's records",
		"remove the damaged streams' folders while the server is stopped; when it starts, the other "+
			"servers fill them again", embedded.InspectFiles(dir))
}

// addDamage adds the findings of an inspection.
func addDamage(s *Survey, area, do string, err error) {
	damaged, ok := errors.AsType[*embedded.DamageError](err)
	switch {
	case ok:
		for _, d := range damaged.Damages {
			s.err(area, do, "%s", d)
		}
	case err != nil:
		s.err(area, "let this user read the files", "%s", err)
	default:
		s.ok(area, "every record is intact, and no required one is missing")
	}
}
