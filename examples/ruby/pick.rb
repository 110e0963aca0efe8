# Calls a cluster's endpoints by lbd's picks: once under a lease, then by a batch of picks that a long poll keeps fresh.
# ruby pick.rb CLUSTER; LBD is where lbd listens (http://localhost:8080). Needs nothing but Ruby.
require "erb"
require "json"
require "net/http"

LBD = ENV.fetch("LBD", "http://localhost:8080")
CLUSTER = ERB::Util.url_encode(ARGV.fetch(0))

def call(request)
  answer = Net::HTTP.start(request.uri.host, request.uri.port, read_timeout: 60) { |http| http.request(request) }
  raise IOError, "#{answer.code} #{answer.body}" unless answer.is_a?(Net::HTTPSuccess)
  JSON.parse(answer.body)
end
def get(path) = call(Net::HTTP::Get.new(URI(LBD + path)))
def post(path, body = nil) = call(Net::HTTP::Post.new(URI(LBD + path)).tap { |r| r.body = body && JSON.dump(body) })

def leased # in flight from the pick to done: for circuit breaking, or where requests are long
  pick = post("/pick?cluster=#{CLUSTER}&ttl=30s")
  outcome = "error"
  yield(pick["address"]).tap { outcome = "success" }
ensure
  post("/v1/leases/#{pick["lease"]["id"]}/done", { outcome: outcome }) if pick
end

def fetch # the cheap way: 100 picks in one answer, again when the cluster changes, and every 30 s in any case
  answer = get("/pick?cluster=#{CLUSTER}&n=100")
  refused = answer["dropped"].values.sum + answer["circuit_broken"]
  @turns = (answer["picks"].map { |p| p["address"] } + [nil] * refused).shuffle.cycle # nil: shed this request
  answer["generation"]
end

puts "leased: #{leased { |address| address }}"
generation = fetch
Thread.new do
  loop { get("/v1/clusters/#{CLUSTER}?endpoints=false&index=#{generation}&wait=30s") and generation = fetch }
rescue SystemCallError, IOError, Timeout::Error # lbd is away or refuses: the picks that are there stay in use
  sleep 1 and retry
end
puts "batch: #{3.times.map { @turns.next }.join(" ")}"
