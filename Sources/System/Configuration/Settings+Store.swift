import ByteStreams
import Journal

/// Where sessions are stored.
extension SettingSection {
  static func store(_ gateway: SettingScope<GatewaySettings>) -> SettingSection {
    let store = gateway.section("store", \.store)
    return SettingSection(
      settings: [
        store("engine", \.engine, .choice, "where sessions are stored: memory, or sqlite, which survives a restart"),
        store("path", \.path, .text, "file of the store, with engine sqlite"),
        store(
          "sync", \.sync, .choice,
          "when the file is synchronised: interval (within one second) or always (before each acknowledgement)"),
        store(
          "pending_bytes", \.pendingBytes, .size((64 << 10)...(16 << 30)),
          "maximum total size of what waits to be stored; above it 503, and above half of it upstreams are not read"),
        store(
          "keep_unused", \.keepUnused, .duration(.zero...(.hours(24 * 3_650))),
          "how long stored sessions are kept that the configuration does not have"),
      ], rules: [store.rule(storeProblems)])
  }

  private static func storeProblems(_ store: StoreSettings) -> [SettingProblem] {
    guard store.engine == .sqlite, store.path.isEmpty else { return [] }
    return [SettingProblem("path", .none, "it is empty: set it to a file, such as /data/drawbridge.db")]
  }
}
