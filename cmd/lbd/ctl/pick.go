package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// pickFlags are the flags of a pick.
type pickFlags struct {
	Cluster      string         `arg:"" optional:"" help:"Name of the cluster. Without it, --target is required."`
	Target       string         `help:"Target whose routes choose the cluster: xds:///NAME or NAME (default none)" placeholder:"TARGET"`
	Path         string         `help:"Path of the request, for the routes of --target (default /)" placeholder:"PATH"`
	Header       []string       `sep:"none" help:"Header of the request, for the routes of --target; repeatable (default none)" placeholder:"NAME=VALUE"`
	Hash         string         `help:"Hash key of the request, for hash policies (default none)" placeholder:"KEY"`
	Exclude      []string       `help:"Address of an endpoint to avoid; repeatable, or separated by commas (default none)" placeholder:"ADDRESS"`
	Wait         *time.Duration `help:"Maximum time that the pick may queue, 0s to 60s (default that of the daemon)" placeholder:"DURATION"`
	WaitForReady bool           `help:"Queue in TRANSIENT_FAILURE as well (default false)"`
	MinIndex     *uint64        `help:"Index of a push that the pick has to use (default any)" placeholder:"INDEX"`
}

func (p *pickFlags) query() (url.Values, error) {
	if p.Cluster == "" && p.Target == "" {
		return nil, usage("CLUSTER or --target is required")
	}
	if p.Cluster != "" && p.Target != "" {
		return nil, usage("CLUSTER and --target exclude each other")
	}
	if p.Target == "" && (p.Path != "" || len(p.Header) > 0) {
		return nil, usage("--path and --header require --target")
	}
	q := parameters("cluster", p.Cluster, "target", p.Target, "path", p.Path, "hash", p.Hash, "wait_for_ready", ifSet(p.WaitForReady))
	for _, h := range p.Header {
		name, value, ok := strings.Cut(h, "=")
		if !ok || name == "" {
			return nil, usage("--header %q: must have the form NAME=VALUE", h)
		}
		q.Add("header."+name, value)
	}
	for _, address := range p.Exclude {
		q.Add("exclude", address)
	}
	if p.Wait != nil {
		q.Set("wait", p.Wait.String())
	}
	if p.MinIndex != nil {
		q.Set("min_index", strconv.FormatUint(*p.MinIndex, 10))
	}
	return q, nil
}

// wait is the time by which the response may be later.
func (p *pickFlags) wait() time.Duration {
	if p.Wait == nil {
		return 0
	}
	return max(0, *p.Wait)
}

type pickCommand struct {
	pickFlags
	N     *int           `short:"n" help:"Number of picks, 1 to 1000 (default 1)" placeholder:"N"`
	TTL   *time.Duration `name:"ttl" help:"Take a lease that expires after this time (default no lease)" placeholder:"DURATION"`
	Owner string         `help:"Who holds the lease; only with --ttl (default none)" placeholder:"NAME"`
}

// picked is an endpoint of a PickAnswer or PicksAnswer.
type picked struct {
	Cluster  string   `json:"cluster"`
	Address  string   `json:"address"`
	Locality locality `json:"locality"`
	Priority int      `json:"priority"`
	Lease    struct {
		ID string `json:"id"`
	} `json:"lease"`
}

// Run prints the picked endpoints.
func (p *pickCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	q, err := p.query()
	if err != nil {
		return err
	}
	r := request{method: http.MethodGet, path: "/pick", query: q, wait: p.wait()}
	if p.N != nil {
		q.Set("n", strconv.Itoa(*p.N))
	}
	if p.TTL != nil {
		r.method = http.MethodPost
		q.Set("ttl", p.TTL.String())
	}
	if p.Owner != "" {
		if p.TTL == nil {
			return usage("--owner requires --ttl")
		}
		q.Set("owner", p.Owner)
	}
	return o.with(app, func(s *session) error {
		answer, err := s.client.do(ctx, r)
		if err != nil {
			return err
		}
		var one picked
		var many struct {
			Picks   []picked          `json:"picks"`
			Dropped map[string]uint64 `json:"dropped"`
			Broken  uint64            `json:"circuit_broken"`
		}
		if err := errors.Join(decode(answer.body, &one), decode(answer.body, &many)); err != nil {
			return err
		}
		if one.Address != "" {
			many.Picks = []picked{one}
		}
		t := newTable("ADDRESS", "CLUSTER", "PRIORITY", "LOCALITY", "LEASE")
		for _, e := range many.Picks {
			t.add(e.Address, cmp.Or(e.Cluster, one.Cluster), priority(e.Priority), e.Locality.String(), e.Lease.ID)
		}
		if err := s.printTables(answer.body, t); err != nil {
			return err
		}
		for category, n := range many.Dropped {
			s.notice("%d picks were dropped (category %q)", n, category)
		}
		if many.Broken > 0 {
			s.notice("the circuit breaker refused %d picks", many.Broken)
		}
		if len(many.Picks) == 0 {
			return errNegative
		}
		return nil
	})
}

type explainCommand struct {
	pickFlags
}

// Run prints the steps of the decision, also if it has no endpoint. As any pick, this one is counted.
func (e *explainCommand) Run(ctx context.Context, o *Options, app *kong.Kong) error {
	q, err := e.query()
	if err != nil {
		return err
	}
	q.Set("explain", "true")
	return o.with(app, func(s *session) error {
		answer, err := s.client.do(ctx, request{method: http.MethodGet, path: "/pick", query: q, wait: e.wait()})
		refused, isRefusal := errors.AsType[*refusal](err)
		if isRefusal && len(refused.Explain) > 0 {
			return errors.Join(s.steps(refused.raw, "", refused.Explain), err)
		}
		if err != nil {
			return err
		}
		var decision struct {
			Address string `json:"address"`
			Explain []step `json:"explain"`
		}
		if err := decode(answer.body, &decision); err != nil {
			return err
		}
		return s.steps(answer.body, decision.Address, decision.Explain)
	})
}

// steps prints the steps of a decision as sentences.
func (s *session) steps(raw []byte, address string, steps []step) error {
	if s.output != "table" {
		var names []string
		if address != "" {
			names = []string{address}
		}
		return s.print(raw, names)
	}
	for i, one := range steps {
		fmt.Fprintf(s.stdout, "%d. %s\n", i+1, escape(one.Says))
	}
	if address != "" {
		fmt.Fprintf(s.stdout, "endpoint: %s\n", escape(address))
	}
	return nil
}
