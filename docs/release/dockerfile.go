package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// settings are those of an image, as engines read them. Of the health check the OCI's specification knows
// nothing; Docker has it there, too.
type settings struct {
	User         string
	Env          []string
	ExposedPorts map[string]struct{}
	Volumes      map[string]struct{}
	Entrypoint   []string
	Cmd          []string
	Healthcheck  map[string]any
	Labels       map[string]string
}

// settingsOf reads the last stage of the Dockerfile, so that what it says is true of both images. It knows
// the instructions that are there, and refuses others.
func settingsOf(dockerfile string) (s settings, err error) {
	_, stage, ok := strings.Cut(dockerfile, "FROM scratch AS verifyd\n")
	if !ok {
		return s, fmt.Errorf("the Dockerfile has no stage verifyd")
	}
	for line := range strings.Lines(stage) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#", "COPY":
		case "USER":
			s.User = rest
		case "ENV":
			s.Env = strings.Fields(rest)
		case "EXPOSE":
			s.ExposedPorts = map[string]struct{}{rest + "/tcp": {}}
		case "VOLUME":
			s.Volumes = map[string]struct{}{rest: {}}
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &s.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &s.Cmd)
		case "HEALTHCHECK":
			s.Healthcheck, err = healthcheckOf(rest)
		default:
			err = fmt.Errorf("an instruction that the release's image cannot follow")
		}
		if err != nil {
			return s, fmt.Errorf("the Dockerfile's %q: %w", strings.TrimSpace(line), err)
		}
	}
	return s, nil
}

// healthcheckOf reads --interval=5s … CMD ["…"].
func healthcheckOf(text string) (map[string]any, error) {
	flags, command, _ := strings.Cut(text, "CMD ")
	var test []string
	if err := json.Unmarshal([]byte(command), &test); err != nil {
		return nil, err
	}
	check := map[string]any{"Test": append([]string{"CMD"}, test...)}
	for flag := range strings.FieldsSeq(flags) {
		name, value, _ := strings.Cut(flag, "=")
		d, err := time.ParseDuration(value)
		if err != nil {
			return nil, err
		}
		key := map[string]string{
			"--interval": "Interval", "--timeout": "Timeout", "--start-period": "StartPeriod",
		}[name]
		if key == "" {
			return nil, fmt.Errorf("unknown flag %s", name)
		}
		check[key] = d
	}
	return check, nil
}
