package sdk

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"verifyd/edge/apidoc"
	"verifyd/edge/client"
)

// The kits are compared with the OpenAPI document that the service serves: each has every operation of the
// document, accepts its parameters, and returns every member of its answers. If an operation or a member is
// added there, this names the kits that lack it.

// operation is an operation of the document, and its name in a kit.
type operation struct {
	*openapi3.Operation

	call, method, path string
	takes              []string // parameters and members of the body, as the document spells them
}

// lacks are the calls that a kit does not have: usage and listen are for tools, and public keys are copied
// from the dashboard once.
var lacks = map[string][]string{
	"JavaScript": {"usage", "listen", "signingkeys"}, "Python": {"usage", "listen", "signingkeys"},
	"PHP": {"usage", "listen", "signingkeys"}, "Ruby": {"usage", "listen", "signingkeys"},
}

var (
	// ownCalls are composed of the document's: a read and a list, repeated.
	ownCalls = []string{"wait", "pages"}
	// ownMembers are not in the document: they come from headers, or are computed.
	ownMembers = []string{
		"Started.id", "Verification.idempotency_key", "Result.id", "Result.session", "Result.sent_at",
		"Result.test", "Refused.retry_after",
	}
	// otherNames are members with another name in a kit, since the name is reserved in its language.
	otherNames = map[string]string{"error_class": "class", "problem": "code", "from_": "from"}
	// ownParameters are a call's additional parameters: what cancels it, and a filter whose members are not
	// declared.
	ownParameters = []string{"signal", "filter"}
)

// document is what the service serves.
var document = sync.OnceValues(func() (*openapi3.T, error) {
	d, err := apidoc.New("https://verify.example.com", "")
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	d.YAML().ServeHTTP(w, httptest.NewRequest("GET", "/openapi.yaml", nil))
	return openapi3.NewLoader().LoadFromData(w.Body.Bytes())
})

func described(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := document()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

var callOf = regexp.MustCompile(`^(?:read(Usage|SigningKeys)|([a-z]+?)(?:Sessions?)?)$`)

// operations are those that a program calls, by the name of the call: without the documentation's, and
// without the second half of listen.
func operations(t *testing.T) map[string]operation {
	t.Helper()
	all := map[string]operation{}
	for path, item := range described(t).Paths.Map() {
		for method, op := range item.Operations() {
			if slices.Contains(op.Tags, "Documentation") || op.OperationID == "answerListen" {
				continue
			}
			m := callOf.FindStringSubmatch(op.OperationID)
			if m == nil {
				t.Fatalf("what is the call of %s?", op.OperationID)
			}
			o := operation{Operation: op, call: strings.ToLower(m[1] + m[2]), method: method, path: path}
			for _, p := range slices.Concat(item.Parameters, op.Parameters) {
				o.takes = append(o.takes, strings.ToLower(strings.ReplaceAll(p.Value.Name, "-", "_")))
			}
			if op.RequestBody != nil {
				body := op.RequestBody.Value.Content.Get("application/json").Schema.Value
				o.takes = slices.AppendSeq(o.takes, maps.Keys(body.Properties))
			}
			all[o.call] = o
		}
	}
	if len(all) < 7 {
		t.Fatalf("the document has %d operations", len(all))
	}
	return all
}

// members returns the structure of a schema: a map by name, a list of one, or, for a value, its enum.
func members(s *openapi3.Schema) any {
	if s.Items != nil {
		return []any{members(s.Items.Value)}
	}
	if len(s.Properties) > 0 {
		all := map[string]any{}
		for name, p := range s.Properties {
			all[name] = members(p.Value)
		}
		return all
	}
	var words []string
	for _, w := range s.Enum {
		if text, ok := w.(string); ok && text != "" {
			words = append(words, text)
		}
	}
	slices.Sort(words)
	return strings.Join(words, "|")
}

// types are the document's types that a kit has, as the kit names their members.
func types(t *testing.T) map[string]any {
	t.Helper()
	of := map[string]any{}
	for kit, name := range map[string]string{
		"Started": "Started", "Session": "Session", "Result": "Result", "Refused": "Problem",
		"Usage": "Usage", "Outcome": "Heard", "Verification": "Verification",
	} {
		of[kit] = members(described(t).Components.Schemas[name].Value)
	}
	problem := of["Refused"].(map[string]any)
	delete(problem, "type") // the code says so,
	delete(problem, "title")
	fault := problem["errors"].([]any)[0].(map[string]any)
	fault["name"] = fault["field"]
	delete(fault, "field")
	problem["fields"] = []any{fault}
	delete(problem, "errors")
	return of
}

var camel = regexp.MustCompile(`([a-z0-9])([A-Z])`)

// plain returns a name as the document would spell it.
func plain(name string) string {
	name = strings.ToLower(camel.ReplaceAllString(name, "${1}_$2"))
	if other, ok := otherNames[name]; ok {
		return other
	}
	return name
}

// compare checks that a kit's members are the document's, and their enums, if the kit declares them.
func compare(t *testing.T, at string, got, want any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		has, ok := got.(map[string]any)
		if !ok {
			t.Errorf("%s is %v, not an object", at, got)
			return
		}
		seen := map[string]bool{}
		for name, value := range has {
			name = plain(name)
			seen[name] = true
			if inner, ok := want[name]; ok {
				compare(t, at+"."+name, value, inner)
			} else if !slices.Contains(ownMembers, at+"."+name) {
				t.Errorf("%s.%s is not in the document", at, name)
			}
		}
		for name := range want {
			if !seen[name] {
				t.Errorf("%s.%s of the document is missing", at, name)
			}
		}
	case []any:
		if has, ok := got.([]any); !ok || len(has) == 0 {
			t.Errorf("%s is %v, not a list", at, got)
		} else {
			compare(t, at+"[]", has[0], want[0])
		}
	case string:
		if has, ok := got.(string); ok && strings.Contains(has, "|") && has != want {
			t.Errorf("%s is one of %s, the document has %s", at, has, want)
		}
	}
}

// surface is what a kit offers.
type surface struct {
	Calls map[string][]string `json:"calls"`
	Types map[string]any      `json:"types"`
}

// judge compares what a kit offers with the document.
func (s surface) judge(t *testing.T, kit string, source []byte) {
	t.Helper()
	all := operations(t)
	if len(s.Calls) == 0 || len(s.Types) == 0 {
		t.Errorf("it offers %v", s)
	}
	for name, takes := range s.Calls {
		op, ok := all[name]
		if !ok {
			if !slices.Contains(ownCalls, name) {
				t.Errorf("the document has no %s", name)
			}
			continue
		}
		if takes != nil {
			op.taken(t, takes, source)
		}
	}
	for name := range all {
		_, has := s.Calls[name]
		if without := slices.Contains(lacks[kit], name); has == without {
			t.Errorf("the call %s is there: %t; it stands in the list of lacks: %t", name, has, without)
		}
	}
	for name, want := range types(t) {
		if got, ok := s.Types[name]; ok {
			compare(t, name, got, want)
		}
	}
}

// taken checks that a call accepts the document's parameters, except wait, for which there is the call of
// that name.
func (o operation) taken(t *testing.T, takes []string, source []byte) {
	t.Helper()
	var names []string
	for _, name := range takes {
		name = plain(name)
		names = append(names, name)
		if !slices.Contains(o.takes, name) && !slices.Contains(ownParameters, name) {
			t.Errorf("%s takes %s, which the document does not have", o.call, name)
		}
	}
	for _, name := range o.takes {
		if slices.Contains(names, name) || slices.Contains(ownCalls, name) {
			continue
		}
		// the description of a filter of any members names its members
		if !slices.Contains(names, "filter") || !regexp.MustCompile(`\b`+name+`\b`).Match(source) {
			t.Errorf("%s does not take %s", o.call, name)
		}
	}
}

// sample returns an answer with every member, each with a value of its own.
func sample(name string, s *openapi3.Schema) any {
	switch {
	case s.Items != nil:
		return []any{sample(name, s.Items.Value)}
	case len(s.Properties) > 0:
		all := map[string]any{}
		for inner, p := range s.Properties {
			all[inner] = sample(inner, p.Value)
		}
		return all
	case len(s.Enum) > 0:
		return s.Enum[len(s.Enum)-1-len(name)%2] // the last, or the one before, of which one is no null
	case s.Type.Includes("boolean"):
		return true
	case s.Type.Includes("integer"):
		return 200 + len(name)
	case s.Format == "date-time":
		return fmt.Sprintf("2026-11-21T13:22:09.%03dZ", 100+len(name))
	default:
		return "the " + name
	}
}

// offers compares an installed kit with the document: its calls, its types, and the members of a session
// that it reads.
func (k kit) offers(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(dir, k.types)); err != nil {
		t.Errorf("its types are not installed: %v", err)
	}
	var s surface
	k.says(t, dir, &s, "", k.surface)
	if k.name != "JavaScript" { // whose declarations say more: TestTypeScript
		source, err := sources.ReadFile(k.source)
		if err != nil {
			t.Fatal(err)
		}
		s.judge(t, k.name, source)
	}
	schema := described(t).Components.Schemas["Session"].Value
	answer := sample("session", schema)
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	ends, _, _ := k.converse(t, dir, []step{{
		call: `{"call":"whole","session":"a"}`,
		asks: []exchange{{request: "GET /sessions/a", status: 200, answer: string(text)}},
	}})
	read := ends[0]["ok"]
	compare(t, "Session", read, members(schema))
	if got, want := values(read), values(answer); got != want {
		t.Errorf("it read\n%s\nof\n%s", got, want)
	}
}

// values prints the values of an answer, whatever the names of members and the format of instants.
func values(v any) string {
	var all []string
	var visit func(v any)
	visit = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for name, inner := range v {
				if _, isValue := inner.(map[string]any); isValue {
					visit(inner)
				} else if list, isList := inner.([]any); isList {
					visit(list)
				} else {
					text, _ := strings.CutSuffix(fmt.Sprint(inner), "+00:00")
					all = append(all, plain(name)+"="+strings.TrimSuffix(text, "Z"))
				}
			}
		case []any:
			for _, inner := range v {
				visit(inner)
			}
		}
	}
	visit(v)
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// The Go client is one of the kits.
func TestGoOffersTheInterface(t *testing.T) {
	t.Parallel()
	s := surface{Calls: map[string][]string{}, Types: map[string]any{
		"Started":      shape(reflect.TypeFor[client.Started]()),
		"Session":      shape(reflect.TypeFor[client.Session]()),
		"Usage":        shape(reflect.TypeFor[client.Usage]()),
		"Outcome":      shape(reflect.TypeFor[client.Outcome]()),
		"Verification": shape(reflect.TypeFor[client.Verification]()),
	}}
	of := reflect.TypeFor[*client.Client]()
	for method := range of.Methods() {
		name := strings.ToLower(method.Name)
		if name == "session" {
			name = "read"
		}
		s.Calls[name] = nil // parameters have no names, but for the types above
	}
	s.judge(t, "Go", nil)
	// these are not read from JSON by their tags
	compare(t, "Result", fieldNames(reflect.TypeFor[client.Result]()), types(t)["Result"])
	refused := fieldNames(reflect.TypeFor[client.Error]())
	delete(refused, "Title")
	refused["Fields"] = []any{fieldNames(reflect.TypeFor[client.Field]())}
	compare(t, "Refused", refused, types(t)["Refused"])
}

func fieldNames(of reflect.Type) map[string]any {
	all := map[string]any{}
	for field := range of.Fields() {
		all[field.Name] = ""
	}
	return all
}

// shape returns the members of a type by the names that they have in JSON.
func shape(of reflect.Type) any {
	switch {
	case of.Kind() == reflect.Pointer:
		return shape(of.Elem())
	case of.Kind() == reflect.Slice:
		return []any{shape(of.Elem())}
	case of.Kind() != reflect.Struct || of == reflect.TypeFor[time.Time]():
		return ""
	}
	all := map[string]any{}
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			all[name] = shape(field.Type)
		}
	}
	return all
}

// The answers for the kits, and their expected requests, match the document, too: paths, methods, parameters,
// members of bodies and answers, codes. Every call and every parameter is in it.
func TestScriptIsTheInterface(t *testing.T) {
	t.Parallel()
	all := operations(t)
	asked := map[string]map[string]bool{}
	for _, s := range script {
		for _, x := range s.asks {
			method, target, _ := strings.Cut(x.request, " ")
			at, err := url.Parse(target)
			if err != nil {
				t.Fatal(err)
			}
			op, ok := find(all, method, at.EscapedPath())
			if !ok {
				t.Errorf("%s is not in the document", x.request)
				continue
			}
			if asked[op.call] == nil {
				asked[op.call] = map[string]bool{}
			}
			for name := range at.Query() {
				asked[op.call][name] = true
			}
			op.judge(t, x, at.Query())
		}
	}
	for name, op := range all {
		if slices.Contains(lacks["Python"], name) {
			continue
		}
		if asked[name] == nil {
			t.Errorf("nothing in the script asks for %s", name)
		}
		for _, p := range op.Parameters {
			if p.Value.In == openapi3.ParameterInQuery && !asked[name][p.Value.Name] {
				t.Errorf("nothing in the script has %s of %s", p.Value.Name, name)
			}
		}
	}
}

// find returns the operation of a request.
func find(all map[string]operation, method, path string) (operation, bool) {
	for _, op := range all {
		pattern := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(op.path), `[^/]+`)
		if op.method == method && regexp.MustCompile("^"+pattern+"$").MatchString(path) {
			return op, true
		}
	}
	return operation{}, false
}

// judge checks one request of the script, and its answer.
func (o operation) judge(t *testing.T, x exchange, query url.Values) {
	t.Helper()
	for name := range query {
		if o.Parameters.GetByInAndName(openapi3.ParameterInQuery, name) == nil {
			t.Errorf("%s: the document has no parameter %s", x.request, name)
		}
	}
	if x.body != "" {
		known(t, x.request, x.body, o.RequestBody.Value.Content.Get("application/json").Schema.Value)
	}
	response := o.Responses.Status(x.status)
	if response == nil || x.answer == "" || !strings.HasPrefix(x.answer, "{") {
		return // a proxy's answer is not in the document
	}
	for kind, media := range response.Value.Content {
		if media.Schema.Value.Type.Is("string") {
			continue // an export, which kits do not request
		}
		known(t, x.request, x.answer, media.Schema.Value)
		if kind == "application/json" {
			continue
		}
		var problem struct{ Code string }
		if err := json.Unmarshal([]byte(x.answer), &problem); err != nil {
			t.Fatal(err)
		}
		if codes := fmt.Sprint(response.Value.Extensions["x-codes"]); !strings.Contains(codes, problem.Code) {
			t.Errorf("%s: status %d has the codes %s, not %s", x.request, x.status, codes, problem.Code)
		}
	}
}

// known checks that the document has every member of a text; not all need be present.
func known(t *testing.T, what, text string, s *openapi3.Schema) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	var visit func(at string, v, want any)
	visit = func(at string, v, want any) {
		switch v := v.(type) {
		case map[string]any:
			of, _ := want.(map[string]any)
			for name, inner := range v {
				if _, ok := of[name]; !ok {
					t.Errorf("%s: the document has no %s.%s", what, at, name)
					continue
				}
				visit(at+"."+name, inner, of[name])
			}
		case []any:
			of, _ := want.([]any)
			for _, inner := range v {
				if len(of) == 0 {
					t.Errorf("%s: %s is no list", what, at)
					return
				}
				visit(at, inner, of[0])
			}
		}
	}
	visit("", v, members(s))
}
