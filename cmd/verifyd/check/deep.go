package check

import (
	"errors"

	"verifyd/cmd/verifyd/config"
	"verifyd/natsconf"
)

// deep reads every record of the embedded store. The service may run meanwhile.
func (s *Survey) deep(c config.Store) {
	if c.NATSURL != "" {
		s.Warn("store's records", "run verifyd check --files on each NATS server while that one is stopped",
			"--deep reads the files of an embedded store; this one is on NATS servers")
		return
	}
	s.damage("store's records", "run verifyd recover, or restore a copy into another data directory",
		natsconf.Inspect(c.DataDir, c.Sync))
}

// Files reads the records of a NATS server's store.
func (s *Survey) Files(dir string) {
	s.damage("store's records",
		"take the damaged streams' folders away while the server is stopped; when it starts, the other servers fill them anew", natsconf.InspectFiles(dir))
}

// damage adds what an inspection has found.
func (s *Survey) damage(area, do string, err error) {
	damaged, ok := errors.AsType[*natsconf.DamageError](err)
	switch {
	case ok:
		for _, d := range damaged.Damages {
			s.err(area, do, "%s", d)
		}
	case err != nil:
		s.err(area, "let this user read the files", "%s", err)
	default:
		s.ok(area, "every record is intact, and none is missing that must be there")
	}
}
