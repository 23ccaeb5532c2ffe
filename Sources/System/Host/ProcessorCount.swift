import CLinux

/// The number of processors that this process may keep busy.
package enum ProcessorCount {
  /// Processors in the affinity mask, limited by the control group's quota (rounded up: half a processor still needs a
  /// loop).
  package static var usable: Int {
    let affinity = Int(clinux_available_processors())
    guard let quota = ControlGroup().processors else { return affinity }
    return max(1, min(affinity, Int(quota.rounded(.up))))
  }
}
