package apidoc

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// call is a request, which is written as a program in each language, from one description. A program uses
// only what the language brings, so that it runs as it is. The key comes from the environment, as
// VERIFYD_API_KEY.
type call struct {
	Method, URL string
	Keyed       bool   // it takes an API key
	Body        string // JSON; empty: none
	Stream      bool   // the answer goes on, line by line
}

// sample is a program that makes a call and prints the status and the body of the answer.
type sample struct{ ID, Language, Text string }

// samplesOf returns the samples of a call, in the order in which they are shown.
func samplesOf(c call) []sample {
	return []sample{
		{"curl", "curl", c.curl()}, {"go", "Go", c.golang()}, {"javascript", "JavaScript", c.javascript()},
		{"python", "Python", c.python()}, {"php", "PHP", c.php()}, {"ruby", "Ruby", c.ruby()},
	}
}

// text collects lines.
type text struct{ strings.Builder }

func (t *text) line(format string, values ...any) { _, _ = fmt.Fprintf(t, format+"\n", values...) }

// when is line where a condition holds.
func (t *text) when(is bool, format string, values ...any) {
	if is {
		t.line(format, values...)
	}
}

// indent moves all lines but the first to the right.
func indent(s, by string) string { return strings.ReplaceAll(s, "\n", "\n"+by) }

func (c call) curl() string {
	words := []string{"curl"}
	if c.Stream {
		words[0] += " -N"
	}
	if c.Method != http.MethodGet {
		words[0] += " -X " + c.Method
	}
	words[0] += " " + c.URL
	if c.Keyed {
		words = append(words, `-H "Authorization: Bearer $VERIFYD_API_KEY"`)
	}
	if c.Body != "" {
		words = append(words, `-H "Content-Type: application/json"`,
			"-d '"+strings.ReplaceAll(c.Body, "'", `'\''`)+"'")
	}
	return strings.Join(words, " \\\n  ") + "\n"
}

func (c call) golang() string {
	var t text
	body := "http.NoBody"
	t.line("package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\t\"log\"\n\t\"net/http\"\n\t\"os\"")
	if c.Body != "" {
		t.line("\t\"strings\"")
		if body = "strings.NewReader(`" + c.Body + "`)"; strings.Contains(c.Body, "`") {
			body = "strings.NewReader(" + strconv.Quote(c.Body) + ")"
		}
	}
	t.line(")\n\nfunc main() {")
	t.line("\treq, err := http.NewRequest(%q, %q, %s)", c.Method, c.URL, body)
	t.line("\tif err != nil {\n\t\tlog.Fatal(err)\n\t}")
	t.when(c.Keyed, "\treq.Header.Set(\"Authorization\", \"Bearer \"+os.Getenv(\"VERIFYD_API_KEY\"))")
	t.when(c.Body != "", "\treq.Header.Set(\"Content-Type\", \"application/json\")")
	t.line("\tanswer, err := http.DefaultClient.Do(req)\n\tif err != nil {\n\t\tlog.Fatal(err)\n\t}")
	t.line("\tdefer answer.Body.Close()\n\tfmt.Println(answer.StatusCode)")
	t.line("\tif _, err := io.Copy(os.Stdout, answer.Body); err != nil {\n\t\tlog.Fatal(err)\n\t}\n}")
	return t.String()
}

func (c call) javascript() string {
	var t text
	t.line("const answer = await fetch(%q, {\n  method: %q,", c.URL, c.Method)
	if c.Keyed || c.Body != "" {
		t.line("  headers: {")
		t.when(c.Keyed, "    Authorization: `Bearer ${process.env.VERIFYD_API_KEY}`,")
		t.when(c.Body != "", "    \"Content-Type\": \"application/json\",")
		t.line("  },")
	}
	t.when(c.Body != "", "  body: JSON.stringify(%s),", indent(c.Body, "  "))
	t.line("});\nconsole.log(answer.status);")
	if c.Stream {
		t.line("for await (const part of answer.body) process.stdout.write(part);")
	} else {
		t.line("console.log(await answer.text());")
	}
	return t.String()
}

func (c call) python() string {
	var t text
	t.line("import os\nimport urllib.request\n\nrequest = urllib.request.Request(\n    %q,\n    method=%q,",
		c.URL, c.Method)
	if c.Keyed || c.Body != "" {
		t.line("    headers={")
		t.when(c.Keyed, "        \"Authorization\": \"Bearer \" + os.environ[\"VERIFYD_API_KEY\"],")
		t.when(c.Body != "", "        \"Content-Type\": \"application/json\",")
		t.line("    },")
	}
	t.when(c.Body != "", "    data=r'''%s'''.encode(),", c.Body)
	t.line(")\nwith urllib.request.urlopen(request) as answer:\n    print(answer.status)")
	t.line("    for line in answer:\n        print(line.decode(), end=\"\", flush=True)")
	if !c.Keyed {
		return strings.Replace(t.String(), "import os\n", "", 1)
	}
	return t.String()
}

// single writes a text between single quotes, as PHP and Ruby read them.
func single(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
}

func (c call) php() string {
	var t text
	t.line("<?php\n\n$answer = fopen(%s, \"r\", false, stream_context_create([\"http\" => [", single(c.URL))
	t.line("    \"method\" => %q,", c.Method)
	if c.Keyed || c.Body != "" {
		t.line("    \"header\" => [")
		t.when(c.Keyed, "        \"Authorization: Bearer \" . getenv(\"VERIFYD_API_KEY\"),")
		t.when(c.Body != "", "        \"Content-Type: application/json\",")
		t.line("    ],")
	}
	t.when(c.Body != "", "    \"content\" => %s,", single(c.Body))
	t.line("    \"ignore_errors\" => true,\n]]));")
	t.line("echo stream_get_meta_data($answer)[\"wrapper_data\"][0], \"\\n\";\nfpassthru($answer);")
	return t.String()
}

func (c call) ruby() string {
	var t text
	class := c.Method[:1] + strings.ToLower(c.Method[1:])
	t.line("require \"net/http\"\n\nuri = URI(%s)\nrequest = Net::HTTP::%s.new(uri)", single(c.URL), class)
	t.when(c.Keyed, "request[\"Authorization\"] = \"Bearer #{ENV.fetch(\"VERIFYD_API_KEY\")}\"")
	t.when(c.Body != "", "request[\"Content-Type\"] = \"application/json\"\nrequest.body = %s",
		single(c.Body))
	t.line("Net::HTTP.start(uri.hostname, uri.port, use_ssl: uri.scheme == \"https\") do |http|")
	t.line("  http.request(request) do |answer|\n    puts answer.code")
	t.line("    answer.read_body { |part| print part }\n  end\nend")
	return t.String()
}
