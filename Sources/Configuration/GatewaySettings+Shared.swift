import Sessions

extension GatewaySettings {
  /// The settings that must be equal on all gateways that share sessions, one per line. Secrets and the paths of files
  /// are left out, since they may differ between machines.
  package var sharedText: String {
    let shared = ["upstream.", "delivery.", "webhooks", "created_sessions.", "store.lease", "store.wait_replicas"]
    let top = Setting.all.filter { setting in shared.contains { setting.path.hasPrefix($0) } }
    let named = sessions.flatMap { Setting.named($0.name) } + profiles.flatMap { Setting.profile($0.name) }
    return (top + named).filter { !$0.isSecret && !$0.path.contains(".tls.") }
      .map { "\($0.path)=\($0.format(self))" }.joined(separator: "\n")
  }
}
