import ByteStreams
import Journal
import RedisProtocol
import RedisStore
import TLSEngine

/// Where sessions are stored.
extension SettingSection {
  static func store(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let store = gateway.section("store", \.store)
    let shared = gateway.section("store", \.sharedStore)
    let tls = shared.section("tls", \.tls)
    return SettingSection(
      settings: [
        store(
          "engine", \.engine, .choice,
          "where sessions are stored: memory; sqlite, which survives a restart; or redis, which several gateways share"),
        store("path", \.path, .path, "file of the store, with engine sqlite"),
        store(
          "sync", \.sync, .choice,
          "when the file is synchronised: interval (within one second) or always (before each acknowledgement)"),
        store(
          "pending_bytes", \.pendingBytes, .size((64 << 10)...(16 << 30)),
          "maximum total size of changes that wait to be stored; above it 503, and above half of it reading from upstreams pauses"
        ),
        store(
          "keep_unused", \.keepUnused, .duration(.zero...(.hours(24 * 3_650))),
          "how long a stored session is kept after its removal from the configuration"),
        shared("url", \.location, .redisURL, "URL of Redis, with engine redis: redis:// or rediss:// (TLS)"),
        shared(
          "sentinels", \.sentinels, .sentinels,
          "addresses of Sentinels, as host:port; empty: the host of store.url is the server"),
        shared("sentinel_name", \.sentinelName, .text, "name of the primary at the Sentinels"),
        shared("password", \.password, .text, "password of Redis, instead of a password in store.url", isSecret: true),
        tls("ca_file", \.trust.caFile, .optionalPath, "PEM file of certificates to trust for rediss://"),
        tls("system_ca", \.trust.systemStore, .boolean, "trust the system's certificates"),
        tls("verify", \.verification, .verification, "verify the certificate of Redis; false is for tests only"),
        tls("server_name", \.serverName, .optionalText, "name to verify instead of the host"),
        tls("client_certificate", \.certificateFile, .path, "PEM file of the client certificate"),
        tls("client_key", \.keyFile, .path, "PEM file of the private key"),
        shared(
          "prefix", \.prefix, .text, "begins the names of all keys; gateways with the same prefix share their sessions"),
        shared(
          "wait_replicas", \.waitReplicas, .countOrAutomatic(0...16),
          "replicas of Redis that must have a change before it counts as stored; auto: 1 with Sentinels, else 0"),
        // The maximum is low, since a request may be forwarded again to the next holder, which must recognise it for
        // more than twice `store.lease`.
        shared(
          "lease", \.lease, .duration(.seconds(2)...(.seconds(30))),
          "how long a silent gateway remains the holder of its sessions; then another gateway takes over"),
      ],
      rules: [
        store.rule(storeProblems), shared.rule(sharedProblems),
        SettingRule { settings in engineProblems(settings) },
      ])
  }

  private static func storeProblems(_ store: StoreSettings) -> [SettingProblem] {
    guard store.engine == .sqlite, store.path.isEmpty else { return [] }
    return [SettingProblem("path", .none, "it is empty: set it to a file, such as /data/drawbridge.db")]
  }

  private static func sharedProblems(_ store: SharedStoreSettings) -> [SettingProblem] {
    var problems: [SettingProblem] = []
    // The prefix must not contain braces, by which Redis chooses the slot of a key, or a space, which separates the
    // fields of an entry.
    if store.prefix.utf8.count > 64
      || !store.prefix.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x7B && $0 != 0x7D })
    {
      problems.append(SettingProblem("prefix", .value, "use 1 to 64 visible ASCII characters without braces"))
    }
    if store.sentinelName.isEmpty || !store.sentinelName.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7F }) {
      problems.append(SettingProblem("sentinel_name", .value, "use the name in 'sentinel monitor NAME'"))
    }
    if store.sentinels.count > 32 {
      problems.append(SettingProblem("sentinels", .none, "use at most 32: a handful is enough"))
    }
    if !store.password.isEmpty, store.location?.url.credentials.password != nil {
      problems.append(SettingProblem("password", .none, "'store.url' has a password too: use one of them"))
    }
    if store.tls.certificateFile.isEmpty != store.tls.keyFile.isEmpty {
      problems.append(
        SettingProblem(
          store.tls.keyFile.isEmpty ? "tls.client_certificate" : "tls.client_key", .none,
          "client_certificate and client_key belong together: set both or none"))
    }
    return problems
  }

  /// The problems of other settings that the engine requires.
  private static func engineProblems(_ settings: GatewaySettings) -> [SettingProblem] {
    guard settings.store.engine == .redis else { return [] }
    var problems: [SettingProblem] = []
    if settings.sharedStore.location == nil, settings.sharedStore.sentinels.isEmpty {
      problems.append(
        SettingProblem("store.url", .missing, "'store.engine' is redis: set a URL, such as redis://127.0.0.1:6379"))
    }
    // The prefix is required and has no default: with a default, two installations that use one Redis could mix their
    // messages unnoticed.
    if settings.sharedStore.prefix.isEmpty {
      problems.append(
        SettingProblem(
          "store.prefix", .missing,
          "'store.engine' is redis: set the same prefix at all gateways of this installation, and a different one for each other installation on this Redis, such as orders-production"
        ))
    }
    if settings.listeners.peers.isEmpty {
      problems.append(
        SettingProblem(
          "listeners.peers", .missing,
          "'store.engine' is redis: set an address at which other gateways reach this gateway, such as 10.0.0.5:9091"))
    }
    return problems
  }
}
