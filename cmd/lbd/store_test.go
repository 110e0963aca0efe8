package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lbd-dev/lbd/service/sources"
	"github.com/lbd-dev/lbd/xds/store/etcd"
)

func TestStoreFlags(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		err    string
	}{
		"none":                  {Config{}, ""},
		"one member":            {Config{Store: "etcd://a:2379/lbd"}, ""},
		"three":                 {Config{Store: "etcd://a:2379,10.0.0.1:2379,[::1]:2379/lbd/prod/"}, ""},
		"another scheme":        {Config{Store: "http://a:2379/lbd"}, "is not etcd://"},
		"no prefix":             {Config{Store: "etcd://a:2379/"}, "is not etcd://"},
		"no members":            {Config{Store: "etcd:///lbd"}, "is not etcd://"},
		"parameters":            {Config{Store: "etcd://a:1/p?x=1"}, `has "?x=1": a store has no parameters`},
		"a fragment":            {Config{Store: "etcd://a:1/p#x"}, `has "#x"`},
		"no port":               {Config{Store: "etcd://a,b:1/lbd"}, `"a" of`},
		"a user, no password":   {Config{StoreAccess: StoreAccess{StoreUser: "u"}}, "--store-password"},
		"a certificate, no key": {Config{StoreAccess: StoreAccess{StoreCert: "c"}}, "--store-key"},
		"a user, no store":      {Config{StoreAccess: StoreAccess{StoreUser: "u", StorePassword: "p"}}, "need --store"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.config.validateStore()
			if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
				t.Errorf("got %v, want %q", err, c.err)
			}
		})
	}
	got, err := parseEtcd("etcd://a:1,b:2/x/y/")
	if err != nil || !slices.Equal(got.Endpoints, []string{"a:1", "b:2"}) || got.Prefix != "x/y" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestStoreFiles(t *testing.T) {
	dir := t.TempDir()
	password := filepath.Join(dir, "password")
	noError(t, os.WriteFile(password, []byte("secret\n"), 0o600))
	c := StoreAccess{StoreUser: "u", StorePassword: password}
	if e, err := c.config("etcd://a:1/lbd"); err != nil || e.Username != "u" || e.Password != "secret" || e.TLS != nil {
		t.Errorf("got %+v, %v", e, err)
	}
	for name, c := range map[string]StoreAccess{
		"--store-password": {StoreUser: "u", StorePassword: filepath.Join(dir, "none")},
		"--store-ca":       {StoreCA: filepath.Join(dir, "none")},
		"no certificate":   {StoreCA: password},
		"--store-cert":     {StoreCert: password, StoreKey: password},
	} {
		if _, err := c.config("etcd://a:1/lbd"); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestStoreState(t *testing.T) {
	state := sources.StoreState{Index: 7, Last: 7}
	describeEtcd(&state, etcd.Status{Fleet: "f", Last: 9, Current: time.Now().Add(-time.Minute), Problems: map[string]error{"k": errors.New("damaged")}})
	if state.Kind != sources.StoreInEtcd || state.Fleet != "f" || state.Last != 9 || state.Unreadable != 1 || *state.BehindSeconds < 60 {
		t.Errorf("got %+v", state)
	}
	state = sources.StoreState{Index: 7, Last: 7}
	describeEtcd(&state, etcd.Status{Last: 5})
	if state.Last != 7 || state.BehindSeconds != nil {
		t.Errorf("never current, and an older answer: %+v", state)
	}
}

func TestStoreConditions(t *testing.T) {
	st := etcd.Status{}
	s := storeConditions{status: func() etcd.Status { return st }, began: map[string]time.Time{}}
	if got := s.list(); len(got) != 1 || !got[0].NotReady {
		t.Errorf("nothing is loaded: %+v", got)
	}
	st.Loaded, st.CopyErr = true, errors.New("disk on fire")
	st.Problems = map[string]error{"k1": errors.New("damaged"), "k2": errors.New("newer")}
	first := s.list()
	if len(first) != 2 || first[0].NotReady || !strings.Contains(first[0].Text, "2 records") || !strings.Contains(first[0].Text, "k2: newer") ||
		!strings.Contains(first[1].Text, "disk on fire") {
		t.Errorf("got %+v", first)
	}
	if again := s.list(); !again[0].Since.Equal(first[0].Since) {
		t.Error("a condition that lasts begins again")
	}
	st = etcd.Status{Loaded: true}
	if got := s.list(); len(got) != 0 || len(s.began) != 0 {
		t.Errorf("solved: %+v", got)
	}
}
