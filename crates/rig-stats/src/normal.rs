//! Reproducible normal deviates for coverage simulations.

/// splitmix64 (Steele, Lea, Flood, OOPSLA 2014) under the Box-Muller transform.
pub struct NormalVariates(pub u64);

impl NormalVariates {
    /// Uniform in (0, 1].
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 + 1.0 / (1u64 << 54) as f64
    }

    pub fn draw(&mut self, mean: f64, deviation: f64) -> f64 {
        let (u, v) = (self.uniform(), self.uniform());
        mean + deviation * (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    pub fn draws(&mut self, n: usize, mean: f64, deviation: f64) -> Vec<f64> {
        (0..n).map(|_| self.draw(mean, deviation)).collect()
    }
}
