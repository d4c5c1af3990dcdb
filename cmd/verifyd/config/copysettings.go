package config

import (
	"fmt"
	"path/filepath"
	"time"
)

// maxScrub is the longest pause: docs/monitoring has an alert for two hours more.
const maxScrub = 24 * time.Hour

// copySettings configure where a second copy of the store is kept, and how often its records are read again.
type copySettings struct {
	StoreScrub time.Duration `default:"1h" help:"How often every record of the embedded store is read again to verify its checksum, with a twentieth of a processor: 1m to 24h; 0: only at the start."`

	CopyTo string `placeholder:"DIR" help:"Folder on another disk or mount for a copy of the embedded store, at most 5 s behind, for verifyd restore; empty: none."`
}

// scrub returns the interval; 0: none.
func (s copySettings) scrub(f *Faults) time.Duration {
	if s.StoreScrub != 0 && (s.StoreScrub < time.Minute || s.StoreScrub > maxScrub) {
		f.outOfRange("store-scrub", s.StoreScrub,
			fmt.Sprintf("use 1m to %s, for example 1h, or 0 for none", maxScrub))
	}
	return s.StoreScrub
}

// config returns the folder; empty: none.
func (s copySettings) config(f *Faults, st Store) string {
	if s.CopyTo == "" {
		return ""
	}
	if st.NATSURL != "" {
		f.Add("copy-to", "set together with VERIFYD_NATS_URL: it copies only the embedded store",
			"leave it out; external servers keep VERIFYD_REPLICAS copies of everything, and verifyd "+
				"backup makes one more")
		return ""
	}
	dir, err := filepath.Abs(s.CopyTo)
	if err != nil {
		f.Add("copy-to", err.Error(), "give the full path of the folder, for example /mnt/backup/verifyd")
	}
	return dir
}
